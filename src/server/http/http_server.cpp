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
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"
#include "server/http/connection.h"
#include "server/http/listeners.h"

namespace moeflux {

namespace asio = boost::asio;
using asio::ip::tcp;
using namespace std::chrono_literals;

namespace {

constexpr auto kUse = asio::as_tuple(asio::use_awaitable);

constexpr rlim_t kOtherFiles = 512;  // of the program: the model's, the prefix store's

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
                .tls = options.tls ? server_tls(*options.tls) : nullptr,
                .log = options.log},
        listeners(open_listeners(io, options)) {
    for (Listener& each : listeners) asio::co_spawn(io, accept(each), asio::detached);
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
    for (const Listener& each : listeners) {
      if (each.is_local && each.is_ours) ::unlink(each.host.c_str());
    }
  }

  asio::awaitable<void> accept(Listener& listener) {
    StreamAcceptor& acceptor = listener.acceptor;
    while (acceptor.is_open()) {
      auto [error, socket] = co_await acceptor.async_accept(kUse);
      if (!acceptor.is_open()) break;
      if (error == asio::error::no_descriptors && spare_files.close_one()) continue;
      if (error) {  // too many open files in the whole system, or a client that left at once
        asio::steady_timer pause(io, 50ms);
        co_await pause.async_wait(kUse);
        continue;
      }
      if (!listener.is_local) {
        boost::system::error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
      }
      asio::co_spawn(io, serve(std::move(socket), listener.is_local), asio::detached);
    }
  }

  asio::awaitable<void> serve(ClientSocket::Plain socket, bool is_local) {
    const auto connection = std::make_shared<Connection>(std::move(socket), context, is_local);
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
    for (Listener& each : listeners) each.acceptor.close(ignored);
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
  std::vector<Listener> listeners;
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
  return impl_->listeners.front().port;
}

std::vector<std::string> HttpServer::urls() const {
  std::vector<std::string> urls;
  for (const Listener& each : impl_->listeners) {
    if (each.is_local) {
      urls.push_back("unix:" + each.host);
      continue;
    }
    const bool is_v6 = each.host.find(':') != std::string::npos;
    urls.push_back(fmt::format("{}://{}:{}", impl_->context.tls ? "https" : "http",
                               is_v6 ? "[" + each.host + "]" : each.host, each.port));
  }
  return urls;
}

std::string HttpServer::certificate_warning() const {
  return impl_->context.tls ? moeflux::certificate_warning(impl_->context.tls) : "";
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
