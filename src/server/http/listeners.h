// Where clients come in: an address, a UNIX socket, or sockets that another program has opened and
// handed over, as systemd does.
#pragma once

#include <string>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>

#include "server/http/http_server.h"

namespace moeflux {

using StreamAcceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

struct Listener {
  StreamAcceptor acceptor;
  bool is_local = false;  // a UNIX socket
  std::string host;       // or the path of that
  int port = 0;           // 0 for a UNIX socket
  bool is_ours = true;    // opened here: its file, if it has one, goes with it
};

// At least one. Throws Error(Io) that says what to do.
std::vector<Listener> open_listeners(boost::asio::io_context& io, const HttpServerOptions& options);

}  // namespace moeflux
