// The socket of a client, with TLS or without.
//
// Belongs to the thread of its io_context. One read and one write may be under way at a time.
#pragma once

#include <memory>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "server/http/tls.h"

namespace moeflux {

class ClientSocket {
 public:
  using Plain = boost::asio::generic::stream_protocol::socket;
  struct Transfer {
    boost::system::error_code error;  // eof: the client sends no more, and may listen
    std::size_t n = 0;
  };
  enum class Greeting { Plain, Tls, Failed };

  // `tls` null: without.
  ClientSocket(Plain socket, const TlsContext& tls);

  bool has_tls() const { return tls_ != nullptr; }
  // Where the client is: "192.0.2.1", "2001:db8::1", "unix".
  const std::string& peer() const { return peer_; }

  // The handshake. Plain: the client does not begin one, but speaks at once.
  boost::asio::awaitable<Greeting> greet();
  boost::asio::awaitable<Transfer> read_some(boost::asio::mutable_buffer buffer);
  boost::asio::awaitable<Transfer> write_some(boost::asio::const_buffer buffer);
  // As write_some, without TLS: for a client that knows nothing of it.
  boost::asio::awaitable<Transfer> write_plain(boost::asio::const_buffer buffer);
  // Says that nothing more will be sent. Until the client has said the same, or cancel().
  boost::asio::awaitable<void> end_sending();
  boost::asio::awaitable<void> wait_for_reset();

  // After end_sending(): bytes are thrown away, so nobody deciphers them.
  boost::asio::awaitable<Transfer> read_plain(boost::asio::mutable_buffer buffer);

  void cancel();
  void close();

 private:
  Plain socket_;
  std::unique_ptr<boost::asio::ssl::stream<Plain&>> tls_;  // null: none
  std::string peer_;
};

}  // namespace moeflux
