// The cache that the Hugging Face hub's tools keep models in, as it lies on the drive:
//   models--ORG--NAME/blobs/HASH             the bytes of each file once, under their hash
//   models--ORG--NAME/snapshots/COMMIT/PATH  a relative link to the blob, for each file of a commit
//   models--ORG--NAME/refs/REVISION          the commit that a branch or tag was, when it was
//   fetched
// A model is opened at its snapshot. Names that come from outside are checked here.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moeflux {

// The hub: the only place that names it, and the short name that people write.
inline constexpr const char* kDefaultEndpoint = "https://huggingface.co";
inline constexpr const char* kShortHost = "hf.co";
// "org/name" of "hf.co/org/name"; another text stays.
std::string_view without_hub_host(std::string_view name);

// What the hub takes for a model: "ORG/NAME", or "NAME" of old ones; letters, digits, ".", "-",
// "_".
bool is_hub_name(std::string_view name);
// "ORG/NAME" alone: what a user may mean the hub by.
bool is_hub_path(std::string_view name);

// "models--ORG--NAME", and the reverse; none for another folder.
std::string hub_folder(std::string_view name);
std::optional<std::string> hub_name(std::string_view folder);

// A path of a file in a repository that stays inside of it: no "..", no link to elsewhere can be
// named by it.
bool is_hub_file(std::string_view path);
// A branch, a tag or a commit: at most one path of plain parts.
bool is_hub_revision(std::string_view revision);
bool is_commit(std::string_view text);  // 40 digits of hexadecimal

// Whether a directory is such a folder, by what lies in it.
bool is_hub_folder(const std::string& directory);

// The snapshot of a revision, or, without one, of main or else of the newest commit there is; none
// when it was not fetched.
std::optional<std::string> hub_snapshot(const std::string& folder, std::string_view revision = {});

// The names of the models in a cache that have a snapshot, sorted. Nothing is opened.
std::vector<std::string> hub_cache_names(const std::string& cache);

// The snapshot of ORG/NAME, ORG/NAME@REVISION or models--ORG--NAME in a cache; none when the text
// is none of these, or the model is not there.
std::optional<std::string> find_in_hub_cache(const std::string& cache, std::string_view text);

}  // namespace moeflux
