// One client: reads its requests one after the other and writes the answers, within the limits.
//
// Belongs to the thread of its io_context; other threads use only the exchange. While a request is
// being answered the connection keeps reading: a client that leaves is noticed at once, and bytes
// that it sends early are kept for the next request.
//
// A client that closes its sending side may still listen: all its requests are answered. Whether it
// listens is found out by writing, since a connection that was closed at the other end answers a
// write with a reset.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http/client_socket.h"
#include "server/http/http_server.h"

namespace moeflux {

// What all connections of a server share.
struct ConnectionContext {
  HttpLimits limits;
  HttpEntry entry;
  ErrorForm error_form;
  boost::asio::io_context& io;
  boost::asio::thread_pool& workers;
  RequestMemoryPtr memory;
  TlsContext tls = {};  // null: none
  AccessLog log = {};   // called on a worker
  bool draining = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ClientSocket::Plain socket, ConnectionContext& context, bool is_local);

  // Until the connection is closed.
  boost::asio::awaitable<void> run();
  // Answers that there are too many connections, and closes this one.
  boost::asio::awaitable<void> refuse();

  void close();
  bool is_idle() const { return is_idle_; }  // between requests
  bool has_memory() const { return has_memory_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Read { Data, Closed, Late };

  boost::asio::awaitable<bool> greet();
  boost::asio::awaitable<Read> read_some(std::chrono::milliseconds at_most);
  boost::asio::awaitable<bool> read_header(Parser& parser);
  boost::asio::awaitable<bool> read_body(Parser& parser);
  boost::asio::awaitable<bool> write_all(std::string bytes);
  boost::asio::awaitable<bool> answer(Parser& parser);
  boost::asio::awaitable<bool> write_answer(std::shared_ptr<LiveExchange> exchange);
  boost::asio::awaitable<bool> watch(LiveExchange& exchange);
  boost::asio::awaitable<bool> wait_for_reset();
  boost::asio::awaitable<bool> keep_probing(LiveExchange& exchange);
  boost::asio::awaitable<bool> fail_with(HttpError error);  // always false
  boost::asio::awaitable<void> linger();

  std::optional<HttpError> parse(Parser& parser);
  std::optional<HttpError> check_header(Parser& parser);
  std::optional<HttpError> reserve_body(std::uint64_t bytes);
  void arm(std::chrono::milliseconds at_most);
  void disarm();
  std::uint64_t own_bytes() const;  // of memory
  void log(const LiveExchange& exchange, bool was_left);

  const bool is_local_;  // a UNIX socket
  ClientSocket socket_;
  ConnectionContext& context_;
  boost::asio::steady_timer deadline_, wake_;
  std::uint64_t armed_ = 0;  // counts arm() and disarm(): an old alarm is ignored
  bool late_ = false;
  bool is_idle_ = true;
  bool input_ended_ = false;  // the client sends no more, but may listen
  MemoryShare memory_;        // of the connection itself
  bool has_memory_;
  std::shared_ptr<MemoryShare> body_memory_;
  boost::beast::flat_buffer buffer_;  // received and not yet used
  // Of the request being read or answered, for the log.
  AccessRecord record_;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace moeflux
