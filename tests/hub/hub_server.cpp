#include "hub/hub_server.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <stdexcept>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"

namespace moeflux::test {
namespace {

std::string digest_of(const char* kind, const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  std::size_t size = 0;
  EVP_Q_digest(nullptr, kind, nullptr, bytes.data(), bytes.size(), digest.data(), &size);
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

std::string decoded(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      result += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

const char* reason(int status) {
  return status < 300 ? "OK" : status < 400 ? "Elsewhere" : "No";
}

}  // namespace

std::string sha256_of(const std::string& bytes) {
  return digest_of("SHA256", bytes);
}

std::string git_hash_of(const std::string& bytes) {
  return digest_of("SHA1", fmt::format("blob {}", bytes.size()) + '\0' + bytes);
}

// One connection, with TLS or without.
class HubServer::Line {
 public:
  Line(int fd, void* context) : fd_(fd) {
    if (context == nullptr) return;
    ssl_ = SSL_new(static_cast<SSL_CTX*>(context));
    SSL_set_fd(ssl_, fd_);
    alive_ = SSL_accept(ssl_) == 1;
  }
  ~Line() {
    if (ssl_ != nullptr) SSL_free(ssl_);
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  bool alive() const { return alive_; }
  void cut() { alive_ = false; }

  bool write(std::string_view bytes) {
    while (alive_ && !bytes.empty()) {
      const auto n =
          ssl_ != nullptr
              ? static_cast<ssize_t>(SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size())))
              : ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) alive_ = false;
      if (n > 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return alive_;
  }

  // The head of a request; "" when there is none more.
  std::string read_head() {
    std::size_t end;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
      std::array<char, 4096> buffer;
      const auto n =
          ssl_ != nullptr
              ? static_cast<ssize_t>(SSL_read(ssl_, buffer.data(), static_cast<int>(buffer.size())))
              : ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (n <= 0) return "";
      received_.append(buffer.data(), static_cast<std::size_t>(n));
    }
    std::string head = received_.substr(0, end + 2);
    received_.erase(0, end + 4);
    return head;
  }

 private:
  int fd_;
  SSL* ssl_ = nullptr;
  bool alive_ = true;
  std::string received_;
};

HubServer::HubServer(const std::string& certificate, const std::string& key) {
  std::signal(SIGPIPE, SIG_IGN);  // of SSL_write
  if (!certificate.empty()) {
    SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1)
      throw std::runtime_error("the certificate of the test is none");
    tls_ = context;
  }
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd_, 64) != 0 ||
      ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("the server of the test cannot listen");
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_all(); });
}

HubServer::~HubServer() {
  stopped_ = true;
  ::shutdown(fd_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& each : threads_) each.join();
  ::close(fd_);
  if (tls_ != nullptr) SSL_CTX_free(static_cast<SSL_CTX*>(tls_));
}

std::string HubServer::url(const std::string& host) const {
  return fmt::format("{}://{}:{}", tls_ != nullptr ? "https" : "http", host, port_);
}

void HubServer::add(const std::string& repository, const std::string& path, HubBytes bytes) {
  const std::lock_guard lock(mutex_);
  blobs_[sha256_of(bytes.content)] = bytes.content;
  repositories_[repository][path] = std::move(bytes);
}

void HubServer::set(HubHabits habits) {
  const std::lock_guard lock(mutex_);
  habits_ = std::move(habits);
}

HubHabits HubServer::habits() const {
  const std::lock_guard lock(mutex_);
  return habits_;
}

std::string HubServer::commit(const std::string& repository) const {
  const std::lock_guard lock(mutex_);
  std::string all = repository;
  for (const auto& [path, bytes] : repositories_.at(repository))
    all += path + sha256_of(bytes.content);
  return sha256_of(all).substr(0, 40);
}

std::vector<SeenRequest> HubServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HubServer::forget() {
  const std::lock_guard lock(mutex_);
  requests_.clear();
  sent_ = 0;
  n_cuts_ = 0;
}

void HubServer::accept_all() {
  while (!stopped_) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    // What lies in this machine's buffers counts as sent: there should be little of it.
    const int bytes = 16 << 10, on = 1;
    ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const std::lock_guard lock(mutex_);
    open_.push_back(fd);
    threads_.emplace_back([this, fd] {
      {
        Line line(fd, tls_);
        serve(line);
      }
      ::shutdown(fd, SHUT_RDWR);
      const std::lock_guard closing(mutex_);
      std::erase(open_, fd);
      ::close(fd);
    });
  }
}

void HubServer::serve(Line& line) {
  while (line.alive() && !stopped_) {
    const std::string head = line.read_head();
    if (head.empty()) return;
    SeenRequest request;
    const std::size_t first = head.find(' '), second = head.find(' ', first + 1);
    request.method = head.substr(0, first);
    request.target = head.substr(first + 1, second - first - 1);
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t end = head.find("\r\n", at), colon = head.find(": ", at);
      std::string name = head.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      request.headers[name] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
    int n_before = 0;
    {
      const std::lock_guard lock(mutex_);
      for (const SeenRequest& each : requests_)
        n_before += each.target == request.target && each.method == request.method ? 1 : 0;
      requests_.push_back(request);
    }
    const HubHabits now = habits();
    if (now.script) {
      const std::string scripted = now.script(request, n_before);
      if (!scripted.empty()) {
        line.write(scripted);
        if (scripted.find("Connection: close") != std::string::npos) return;
        continue;
      }
    }
    if (!answer(line, request)) return;
  }
}

bool HubServer::refuse(Line& line, int status, const std::string& words,
                       const std::string& headers) {
  const std::string body = dump_json({{"error", words}});
  return line.write(fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", status,
      reason(status), body.size(), headers, body));
}

bool HubServer::answer(Line& line, const SeenRequest& request) {
  const HubHabits now = habits();
  const std::string path = decoded(request.target.substr(0, request.target.find('?')));
  if (path.starts_with("/blob/")) {
    std::string bytes;
    {
      const std::lock_guard lock(mutex_);
      const auto found = blobs_.find(path.substr(6));
      if (found != blobs_.end()) bytes = found->second;
    }
    if (now.spoils_bytes && !bytes.empty()) bytes[bytes.size() / 2] ^= 1;
    return send_bytes(line, request, bytes, "");
  }
  if (!now.token.empty() && request.headers.count("authorization") == 0)
    return refuse(line, 401, "Invalid username or password.",
                  fmt::format("X-Error-Code: {}\r\n", now.error_code));
  if (!now.token.empty() && request.headers.at("authorization") != "Bearer " + now.token)
    return refuse(line, now.error_code.empty() ? 401 : 403, "Access to this model is restricted.",
                  fmt::format("X-Error-Code: {}\r\n", now.error_code));
  constexpr std::string_view kApi = "/api/models/", kRevision = "/revision/", kFile = "/resolve/";
  if (path.starts_with(kApi)) {
    const std::size_t at = path.find(kRevision);
    return answer_listing(line, request, path.substr(kApi.size(), at - kApi.size()),
                          path.substr(at + kRevision.size()));
  }
  const std::size_t at = path.find(kFile);
  if (at == std::string::npos) return refuse(line, 404, "Not found");
  const std::string repository = path.substr(1, at - 1);
  const std::size_t begin = at + kFile.size(), slash = path.find('/', begin);
  const std::string file = path.substr(slash + 1);
  HubBytes bytes;
  {
    const std::lock_guard lock(mutex_);
    const auto found = repositories_.find(repository);
    if (found == repositories_.end() || !found->second.contains(file))
      return refuse(line, 404, "Entry not found", "X-Error-Code: EntryNotFound\r\n");
    bytes = found->second.at(file);
  }
  std::string headers = fmt::format("X-Repo-Commit: {}\r\n", commit(repository));
  if (!bytes.lfs) {
    headers += fmt::format("ETag: \"{}\"\r\n", git_hash_of(bytes.content));
    return send_bytes(line, request, bytes.content, headers);
  }
  const std::string hash = sha256_of(bytes.content);
  headers +=
      fmt::format("X-Linked-Etag: \"{}\"\r\nX-Linked-Size: {}\r\n", hash, bytes.content.size());
  if (!now.lfs_host.empty())
    return line.write(
        fmt::format("HTTP/1.1 302 Found\r\nLocation: {}/blob/{}\r\n{}Content-Length: "
                    "0\r\n\r\n",
                    now.lfs_host, hash, headers));
  headers += fmt::format("ETag: \"{}\"\r\n", hash);
  if (now.spoils_bytes) bytes.content[bytes.content.size() / 2] ^= 1;
  return send_bytes(line, request, bytes.content, headers);
}

bool HubServer::answer_listing(Line& line, const SeenRequest& request,
                               const std::string& repository, const std::string& revision) {
  const HubHabits now = habits();
  Json files = Json::array();
  {
    const std::lock_guard lock(mutex_);
    const auto found = repositories_.find(repository);
    if (found == repositories_.end())
      return refuse(line, 404, "Repository not found", "X-Error-Code: RepoNotFound\r\n");
    if (!now.wanted_revision.empty() && revision != now.wanted_revision)
      return refuse(line, 404, "Invalid rev id", "X-Error-Code: RevisionNotFound\r\n");
    for (const auto& [path, bytes] : found->second) {
      Json file = {{"rfilename", path}};
      if (now.lists_sizes) {
        file["size"] = bytes.content.size();
        file["blobId"] = git_hash_of(bytes.content);
        if (bytes.lfs) {
          const auto size = static_cast<std::int64_t>(bytes.content.size()) + now.size_offset;
          file["lfs"] = {
              {"sha256", sha256_of(bytes.content)}, {"size", size}, {"pointerSize", 130}};
        }
      }
      files.push_back(std::move(file));
    }
  }
  const std::string body =
      dump_json({{"id", repository}, {"sha", commit(repository)}, {"siblings", std::move(files)}});
  return line.write(
      fmt::format("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                  "Content-Length: {}\r\n\r\n{}",
                  body.size(), request.method == "HEAD" ? "" : body));
}

bool HubServer::send_bytes(Line& line, const SeenRequest& request, const std::string& bytes,
                           const std::string& headers) {
  const HubHabits now = habits();
  std::size_t begin = 0, end = bytes.size();
  int status = 200;
  std::string range_header;
  const auto range = request.headers.find("range");
  if (range != request.headers.end() && now.knows_ranges) {
    const std::size_t dash = range->second.find('-');
    begin = std::stoull(range->second.substr(6, dash - 6));
    if (dash + 1 < range->second.size())
      end = std::min<std::size_t>(end, std::stoull(range->second.substr(dash + 1)) + 1);
    if (begin >= bytes.size()) return refuse(line, 416, "Range not satisfiable");
    status = 206;
    range_header = fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, end - 1, bytes.size());
  }
  const std::string length = now.sends_lengths ? fmt::format("Content-Length: {}\r\n", end - begin)
                                               : "Connection: close\r\n";
  if (!line.write(fmt::format("HTTP/1.1 {} {}\r\n{}{}{}\r\n", status, reason(status), headers,
                              range_header, length)))
    return false;
  if (request.method == "HEAD") return true;
  std::size_t cut = end;
  {
    const std::lock_guard lock(mutex_);
    // The last few bytes come through, or a line would be cut without any again and again.
    if (end - begin > 1000 && random_.chance(now.cut_chance))
      cut = begin + static_cast<std::size_t>(random_.uniform() * static_cast<double>(end - begin));
  }
  const auto start = std::chrono::steady_clock::now();
  const std::size_t first = begin;
  while (begin < cut && !stopped_) {
    const std::size_t n = std::min<std::size_t>(cut - begin, 16 << 10);
    if (!line.write(std::string_view(bytes).substr(begin, n))) return false;
    sent_ += n;
    begin += n;
    if (now.bytes_per_second > 0) {
      std::this_thread::sleep_until(
          start + std::chrono::microseconds((begin - first) * 1'000'000 / now.bytes_per_second));
    }
  }
  if (cut < end) {
    ++n_cuts_;
    return false;
  }
  return now.sends_lengths;
}

}  // namespace moeflux::test
