#include "server/http/http_server.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "server/http/connection.h"

namespace moeflux {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using namespace std::chrono_literals;

namespace {

constexpr std::string_view kSocketSuffix = ".sock";
constexpr auto kUse = asio::as_tuple(asio::use_awaitable);

constexpr rlim_t kOtherFiles = 512;  // of the program: the model's, the prefix store's

bool is_socket_path(const std::string& host) {
  return host.size() > kSocketSuffix.size() && host.ends_with(kSocketSuffix);
}

// How many of the wanted connections there may be. Each is an open file, and programs are commonly
// started with room for 1024 of them: raises the soft limit. Connections beyond the limit would not
// be refused but wait, unheard, until idle ones end.
std::size_t room_for(std::size_t n_connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return n_connections;
  const rlim_t wanted = n_connections + kOtherFiles;
  if (limit.rlim_cur < wanted) {
    const rlim_t before = std::exchange(limit.rlim_cur, std::min(wanted, limit.rlim_max));
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  }
  const rlim_t room = limit.rlim_cur - std::min(kOtherFiles, limit.rlim_cur / 2);
  return static_cast<std::size_t>(std::min<rlim_t>(n_connections, room));
}

[[noreturn]] void cannot_listen(const HttpServerOptions& options,
                                const boost::system::error_code& error) {
  if (error == asio::error::address_in_use) {
    fail(Errc::Io,
         "port {} of {} is taken, perhaps by another moeflux serve; choose one with --port, or 0 "
         "for any that is free",
         options.port, options.host);
  }
  if (error == asio::error::access_denied) {
    fail(Errc::Io, "port {} needs rights this user has not; choose one above 1023 with --port",
         options.port);
  }
  fail(Errc::Io, "cannot listen on {} port {}: {}{}", options.host, options.port, error.message(),
       error == asio::error::no_descriptors ? "; allow more with ulimit -n" : "");
}

tcp::acceptor listen_tcp(asio::io_context& io, const HttpServerOptions& options) {
  boost::system::error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty())
    fail(Errc::Io, "cannot listen on {}: {}", options.host, error.message());
  tcp::acceptor acceptor(io);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) cannot_listen(options, error);
  return acceptor;
}

// A socket left behind by a program that was killed is replaced; one that answers is not.
stream_protocol::acceptor listen_local(asio::io_context& io, const std::string& path) {
  boost::system::error_code error;
  const stream_protocol::endpoint endpoint(path);
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    stream_protocol::socket probe(io);
    probe.connect(endpoint, error);
    if (!S_ISSOCK(info.st_mode) || !error)
      fail(Errc::Io, "{}: is taken; name another socket with --host", path);
    ::unlink(path.c_str());
  }
  stream_protocol::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(Errc::Io, "{}: cannot listen there: {}", path, error.message());
  return acceptor;
}

// Open files that are kept back for connections. Where no more may be opened, closing one makes
// room to accept a client: a few are always answered, and the next is told that there are too many
// instead of waiting unheard.
class SpareFiles {
 public:
  SpareFiles() {
    refill();
    if (files_.size() == kCount) return;
    const std::size_t n_missing = kCount - files_.size();
    for (const int file : files_) ::close(file);
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    fail(Errc::Io,
         "a server needs {} open files for its connections, {} more than this process may have; "
         "allow at least {} with ulimit -n, and as many more as the model has files",
         kCount, n_missing, limit.rlim_cur + n_missing);
  }
  ~SpareFiles() {
    for (const int file : files_) ::close(file);
  }
  SpareFiles(const SpareFiles&) = delete;
  SpareFiles& operator=(const SpareFiles&) = delete;

  bool empty() const { return files_.empty(); }
  bool close_one() {  // false: there is none left
    if (files_.empty()) return false;
    ::close(files_.back());
    files_.pop_back();
    return true;
  }
  void refill() {  // as far as possible
    while (files_.size() < kCount) {
      const int file = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (file < 0) return;
      files_.push_back(file);
    }
  }

 private:
  static constexpr std::size_t kCount = 8;
  std::vector<int> files_;
};

}  // namespace

struct HttpServer::Impl {
  Impl(HttpServerOptions given, HttpEntry entry, ErrorForm error_form)
      : options(std::move(given)),
        workers(static_cast<std::size_t>(std::max(options.n_workers, 1))),
        context{.limits = options.limits,
                .entry = std::move(entry),
                .error_form = std::move(error_form),
                .io = io,
                .workers = workers,
                .memory = options.memory,
                .is_local = is_socket_path(options.host)} {
    if (context.is_local) {
      local = std::make_unique<stream_protocol::acceptor>(listen_local(io, options.host));
      asio::co_spawn(io, accept(*local), asio::detached);
    } else {
      network = std::make_unique<tcp::acceptor>(listen_tcp(io, options));
      port = network->local_endpoint().port();
      asio::co_spawn(io, accept(*network), asio::detached);
    }
    thread = std::thread([this] { io.run(); });
  }

  ~Impl() {
    asio::post(io, [this] {
      drain();
      for (Connection* each : connections) each->close();
    });
    workers.join();
    guard.reset();
    if (!wait_until_empty(5s)) io.stop();  // a bug of ours, but not one to hang for
    thread.join();
    if (context.is_local) ::unlink(options.host.c_str());
  }

  template <class Acceptor>
  asio::awaitable<void> accept(Acceptor& acceptor) {
    while (acceptor.is_open()) {
      auto [error, socket] = co_await acceptor.async_accept(kUse);
      if (!acceptor.is_open()) break;
      if (error == asio::error::no_descriptors && spare_files.close_one()) continue;
      if (error) {  // too many open files in the whole system, or a client that left at once
        asio::steady_timer pause(io, 50ms);
        co_await pause.async_wait(kUse);
        continue;
      }
      if constexpr (std::is_same_v<Acceptor, tcp::acceptor>) {
        boost::system::error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
      }
      asio::co_spawn(io, serve(std::move(socket)), asio::detached);
    }
  }

  asio::awaitable<void> serve(Connection::Socket socket) {
    const auto connection = std::make_shared<Connection>(std::move(socket), context);
    const bool too_many = connections.size() >= options.limits.connections || spare_files.empty() ||
                          !connection->has_memory();
    connections.insert(connection.get());
    set_count();
    try {
      if (too_many)
        co_await connection->refuse();
      else
        co_await connection->run();
    } catch (const std::exception&) {  // out of memory: this client loses its connection
      connection->close();
    }
    connections.erase(connection.get());
    spare_files.refill();
    set_count();
  }

  void drain() {
    context.draining = true;
    boost::system::error_code ignored;
    if (network) network->close(ignored);
    if (local) local->close(ignored);
    for (Connection* each : connections) {
      if (each->is_idle()) each->close();
    }
  }

  void set_count() {
    const std::lock_guard lock(mutex);
    n_connections = connections.size();
    if (n_connections == 0) empty.notify_all();
  }

  bool wait_until_empty(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex);
    return empty.wait_for(lock, at_most, [this] { return n_connections == 0; });
  }

  HttpServerOptions options;
  SpareFiles spare_files;  // of the io thread
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> guard{io.get_executor()};
  asio::thread_pool workers;
  ConnectionContext context;
  std::unique_ptr<tcp::acceptor> network;
  std::unique_ptr<stream_protocol::acceptor> local;
  int port = 0;
  std::set<Connection*> connections;  // of the io thread

  std::mutex mutex;
  std::condition_variable empty;
  std::size_t n_connections = 0;
  std::thread thread;
};

HttpServer::HttpServer(HttpServerOptions options, HttpEntry entry, ErrorForm error_form) {
  options.limits.connections = room_for(options.limits.connections);
  try {
    impl_ = std::make_unique<Impl>(std::move(options), std::move(entry), std::move(error_form));
  } catch (const boost::system::system_error& error) {
    fail(Errc::Io,
         "the server cannot start: {}; where open files are too few, allow {} with ulimit -n",
         error.what(), kOtherFiles);
  }
}

HttpServer::~HttpServer() = default;

int HttpServer::port() const {
  return impl_->port;
}

std::string HttpServer::url() const {
  const std::string& host = impl_->options.host;
  if (impl_->context.is_local) return "unix:" + host;
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}:{}", is_v6 ? "[" + host + "]" : host, impl_->port);
}

std::size_t HttpServer::n_connections() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->n_connections;
}

void HttpServer::post(std::function<void()> work) {
  asio::post(impl_->workers, std::move(work));
}

void HttpServer::drain() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->drain(); });
}

bool HttpServer::wait_until_empty(std::chrono::milliseconds at_most) {
  return impl_->wait_until_empty(at_most);
}

}  // namespace moeflux
