#include "hub/model_headers.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/gguf_header.h"
#include "base/memory_budget.h"
#include "source/gguf.h"

namespace moeflux {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFirstBytes = 256 << 10;
constexpr std::uint64_t kMostSmall = 64u << 20;          // of a config, a tokenizer, an index
constexpr std::uint64_t kMostSafetensors = 100'000'000;  // as the format says
constexpr std::uint64_t kMostGguf = 256u << 20;

void write_file(const fs::path& path, const std::string& bytes, std::uint64_t size) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  std::error_code error;
  if (out) fs::resize_file(path, size, error);
  if (!out || error)
    fail(Errc::Io, "{}: cannot be written; TMPDIR names another place", path.string());
}

class HeaderReader {
 public:
  HeaderReader(HubClient& client, Url url, std::uint64_t size)
      : client_(client), url_(std::move(url)), size_(size) {}

  // At least the first `n` bytes, or all there are.
  const std::string& first(std::uint64_t n) {
    n = std::min(n, size_);
    if (bytes_.size() < n) bytes_ += client_.text(url_, {bytes_.size(), n});
    if (bytes_.size() < n) fail(Errc::Io, "{}: is shorter than it was said", url_.shown());
    return bytes_;
  }

 private:
  HubClient& client_;
  const Url url_;
  const std::uint64_t size_;
  std::string bytes_;
};

std::string safetensors_header(HeaderReader& reader, const HubFile& file) {
  if (file.size < 8) fail(Errc::BadInput, "{}: too short for safetensors", file.path);
  std::uint64_t length = 0;
  std::memcpy(&length, reader.first(kFirstBytes).data(), sizeof length);
  if (length > kMostSafetensors || length + 8 > file.size)
    fail(Errc::BadInput, "{}: its header claims {} bytes; it is no safetensors file", file.path,
         length);
  return reader.first(8 + length).substr(0, 8 + length);
}

// A header of GGUF does not say how long it is: more is fetched until it reads to its end.
std::string gguf_header(HeaderReader& reader, const HubFile& file, const fs::path& path) {
  for (std::uint64_t n = 4 * kFirstBytes;; n *= 4) {
    const std::string& bytes = reader.first(n);
    write_file(path, bytes, bytes.size());
    try {
      static_cast<void>(GgufHeader(path.string()));
      return bytes;
    } catch (const Error&) {
      if (n >= std::min(file.size, kMostGguf)) throw;
    }
  }
}

}  // namespace

std::string fetch_headers(const HubReference& reference, FileChoice choice,
                          const std::string& directory, const PullOptions& options) {
  const PullPlan plan = plan_pull(reference, std::move(choice), options);
  HubClient client(std::make_shared<HubClientOptions>(options.client), make_tls_context());
  std::string opened = directory;
  for (const HubFile& file : plan.files) {
    const Url url = hub_file_url(options.client.settings, plan.name, plan.commit, file.path);
    const fs::path path = fs::path(directory) / file.path;
    fs::create_directories(path.parent_path());
    HeaderReader reader(client, url, file.size);
    if (file.path.ends_with(".safetensors")) {
      write_file(path, safetensors_header(reader, file), file.size);
    } else if (is_gguf_name(file.path)) {
      const std::string header = gguf_header(reader, file, path);
      write_file(path, header, file.size);
      if (opened == directory) opened = path.string();
    } else if (file.size <= kMostSmall) {
      write_file(path, reader.first(file.size), file.size);
    } else {
      fail(Errc::Unsupported,
           "{}: {} has {}, and only headers of safetensors and GGUF files can be read without the "
           "rest; pull it first",
           plan.name, file.path, format_bytes(file.size));
    }
  }
  return opened;
}

}  // namespace moeflux
