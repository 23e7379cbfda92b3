#include "hub/repository.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "source/hub_cache.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxFiles = 50'000;
constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 50;

bool is_hex(std::string_view text, std::size_t length) {
  return text.size() == length &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// "/" counts as any other character.
std::string encode_whole(std::string_view text) {
  std::string result;
  for (const std::string& part : split(text, '/'))
    result += (result.empty() ? "" : "%2F") + encode_path(part);
  return result;
}

void name_hash(HubFile& file, std::string blob, const std::string& origin) {
  file.hash = is_hex(blob, 64)   ? BlobHash::Sha256
              : is_hex(blob, 40) ? BlobHash::GitSha1
                                 : BlobHash::Unknown;
  const bool plain =
      !blob.empty() && blob.size() <= 128 && blob.front() != '.' &&
      std::all_of(blob.begin(), blob.end(), [](unsigned char c) {
        return (c < 0x80 && std::isalnum(c) != 0) || c == '-' || c == '_' || c == '.';
      });
  if (!plain) fail(Errc::BadInput, "{}: {} has no hash that can name it", origin, file.path);
  file.blob = std::move(blob);
}

HubFile read_file(const Json& sibling, const std::string& origin) {
  if (!sibling.is_object()) fail(Errc::BadInput, "{}: a file is no object", origin);
  const JsonFields fields(sibling, origin);
  HubFile file;
  file.path = fields.string("rfilename");
  if (!is_hub_file(file.path)) {
    fail(Errc::BadInput,
         "{}: lists a file whose name leads out of the repository or is none; it is not fetched",
         origin);
  }
  const std::string where = origin + ": " + file.path;
  if (const Json* lfs = fields.find("lfs"); lfs != nullptr && lfs->is_object()) {
    const JsonFields large(*lfs, where);
    file.size = static_cast<std::uint64_t>(large.integer("size", 0, kMaxFileBytes));
    name_hash(file, large.has("sha256") ? large.string("sha256") : large.string("oid"), where);
    if (file.hash != BlobHash::Sha256) fail(Errc::BadInput, "{}: its SHA-256 is none", where);
  } else if (fields.has("size") && fields.has("blobId")) {
    file.size = static_cast<std::uint64_t>(fields.integer("size", 0, kMaxFileBytes));
    name_hash(file, fields.string("blobId"), where);
  }
  return file;
}

std::string etag_of(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"')
    text = text.substr(1, text.size() - 2);
  return text;
}

// Where the listing does not say it: some mirrors leave sizes and hashes out.
void ask_for(HubClient& client, const HubListing& listing, HubFile& file) {
  const Url url = hub_file_url(client.options().settings, listing.name, listing.commit, file.path);
  const HubClient::Reply reply = client.head(url);
  const auto either = [&](const char* linked, const char* own) {
    const std::string text = reply.first.header(linked);
    return text.empty() ? reply.first.header(own) : text;
  };
  const auto size = to_number<std::uint64_t>(either("x-linked-size", "content-length"));
  if (!size || *size > static_cast<std::uint64_t>(kMaxFileBytes))
    fail(Errc::BadInput, "{}: the hub does not say how large it is", url.shown());
  file.size = *size;
  name_hash(file, etag_of(either("x-linked-etag", "etag")), url.shown());
}

// "https://hub/ORG/NAME/resolve/main/x.gguf", without the host.
void read_page_path(std::string_view path, HubReference& reference) {
  std::vector<std::string> parts;
  for (const std::string& part : split(decode_path(path.substr(0, path.find('?'))), '/'))
    if (!part.empty()) parts.push_back(part);
  if (parts.empty()) return;
  const std::size_t n_name = std::min<std::size_t>(parts.size(), 2);
  reference.name = parts[0] + (n_name == 2 ? "/" + parts[1] : "");
  if (parts.size() < 4) return;
  if (parts[2] != "tree" && parts[2] != "blob" && parts[2] != "resolve") return;
  reference.revision = parts[3];
  for (std::size_t i = 4; i < parts.size(); ++i)
    reference.file += (reference.file.empty() ? "" : "/") + parts[i];
}

// The host of an address without its scheme is the hub's, or "".
std::string_view below_host(std::string_view text, std::string_view host) {
  return text.size() > host.size() && text.starts_with(host) && text[host.size()] == '/'
             ? text.substr(host.size() + 1)
             : std::string_view();
}

}  // namespace

bool is_foreign_address(std::string_view text, const HubSettings& settings) {
  if (text.find("://") == std::string_view::npos) return false;
  const Url url = parse_url(text);
  return !url.same_origin(parse_url(settings.endpoint)) &&
         !(url.is_secure() && url.host == kShortHost) &&
         !url.same_origin(parse_url(kDefaultEndpoint));
}

HubReference parse_hub_reference(std::string_view text, const HubSettings& settings) {
  HubReference reference;
  std::string_view short_form = without_hub_host(text);
  if (const auto rest = below_host(text, parse_url(settings.endpoint).authority()); !rest.empty())
    short_form = rest;
  if (text.find("://") != std::string_view::npos) {
    read_page_path(parse_url(text).target, reference);
  } else {
    // "ORG/NAME@REVISION" and "ORG/NAME:TAG"
    const std::size_t mark = short_form.find_first_of("@:");
    reference.name = std::string(short_form.substr(0, mark));
    if (mark != std::string_view::npos) {
      std::string& part = short_form[mark] == '@' ? reference.revision : reference.tag;
      part = std::string(short_form.substr(mark + 1));
      if (part.empty())
        fail(Errc::BadInput, "{}: after {} comes the name of a {}", text, short_form[mark],
             short_form[mark] == '@' ? "branch, a tag or a commit" : "quantization, as in :Q4_K_M");
    }
    if (const auto name = hub_name(reference.name)) reference.name = *name;
    if (reference.tag == "latest") reference.tag.clear();
    if (is_hub_name(reference.name) && !is_hub_path(reference.name)) {
      fail(Errc::BadInput, "{}: is no name of a model on the hub; names are ORG/NAME", text);
    }
  }
  if (!is_hub_name(reference.name)) {
    fail(Errc::BadInput,
         "{}: is no name of a model on the hub; names are ORG/NAME, of letters, digits, \".\", "
         "\"-\" and \"_\", with @REVISION or :QUANTIZATION after it",
         text.substr(0, 200));
  }
  if (!is_hub_revision(reference.revision))
    fail(Errc::BadInput, "{}: \"{}\" is no name of a revision", text, reference.revision);
  if (!reference.file.empty() && !is_hub_file(reference.file))
    fail(Errc::BadInput, "{}: \"{}\" is no name of a file", text, reference.file);
  return reference;
}

Url hub_file_url(const HubSettings& settings, const std::string& name, const std::string& revision,
                 const std::string& path) {
  return parse_url(fmt::format("{}/{}/resolve/{}/{}", settings.endpoint, encode_path(name),
                               encode_whole(revision), encode_path(path)));
}

HubListing list_repository(HubClient& client, const HubReference& reference) {
  const std::string& endpoint = client.options().settings.endpoint;
  const Url url =
      parse_url(fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint,
                            encode_path(reference.name), encode_whole(reference.revision)));
  const Json json = client.json(url);
  const std::string origin = url.shown();
  if (!json.is_object()) fail(Errc::BadInput, "{}: is no listing of a model", origin);
  const JsonFields fields(json, origin);
  HubListing listing{.name = reference.name,
                     .revision = reference.revision,
                     .commit = fields.string("sha"),
                     .files = {}};
  if (!is_commit(listing.commit)) fail(Errc::BadInput, "{}: \"sha\" is no commit", origin);
  const Json* siblings = fields.find("siblings");
  if (siblings == nullptr || !siblings->is_array())
    fail(Errc::BadInput, "{}: lists no files", origin);
  if (siblings->size() > kMaxFiles)
    fail(Errc::LimitExceeded, "{}: lists {} files, more than {}", origin, siblings->size(),
         kMaxFiles);
  for (const Json& each : *siblings) listing.files.push_back(read_file(each, origin));
  std::sort(listing.files.begin(), listing.files.end(),
            [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  std::set<std::string> paths;
  for (const HubFile& file : listing.files) {
    if (!paths.insert(file.path).second)
      fail(Errc::BadInput, "{}: lists {} twice", origin, file.path);
  }
  for (const std::string& path : paths) {
    for (std::size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      if (paths.contains(path.substr(0, slash)))
        fail(Errc::BadInput, "{}: lists {} as a file and as a folder", origin,
             path.substr(0, slash));
    }
  }
  return listing;
}

void complete_file(HubClient& client, const HubListing& listing, HubFile& file) {
  if (file.blob.empty()) ask_for(client, listing, file);
}

}  // namespace moeflux
