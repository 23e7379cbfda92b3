// Damaged GGUF files: whatever the bytes of header and metadata are, opening a file, describing its
// model and loading its tokenizer succeed or throw Error, and take no more memory than the file
// backs. MOEFLUX_MUTATIONS=100000 in the environment makes it as many; CONTRIBUTING.md says how to
// run that under the sanitizers.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include <gtest/gtest.h>

#include "base/gguf_header.h"
#include "families/family.h"
#include "source/gguf.h"
#include "support/paths.h"
#include "support/tiny_gguf.h"
#include "text/tokenizer/tokenizer.h"

namespace {

// The largest allocation since it was set to 0.
std::atomic<std::size_t> largest_allocation = 0;

void* allocate(std::size_t bytes) {
  std::size_t seen = largest_allocation;
  while (bytes > seen && !largest_allocation.compare_exchange_weak(seen, bytes)) {
  }
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) {
  return allocate(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace moeflux {
namespace {

using test::GgufWriter;
using test::TempDir;

int n_mutations() {
  const char* wanted = std::getenv("MOEFLUX_MUTATIONS");
  return wanted == nullptr ? 3000 : std::atoi(wanted);
}

// Of every architecture one, header first; and one with a vocabulary of pieces with scores.
std::vector<std::string> originals() {
  std::vector<std::string> files{test::tiny_gguf().bytes()};
  GgufWriter pieces;
  test::add_tiny_metadata(pieces);
  pieces.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x0A>", "a", "b", "ab"})
      .numbers<std::int32_t>("tokenizer.ggml.token_type", {2, 3, 3, 6, 1, 1, 1})
      .numbers<float>("tokenizer.ggml.scores", {0, 0, 0, 0, -2, -2, -1});
  test::for_each_tiny_tensor([&](const std::string& name, const std::vector<std::int64_t>& shape) {
    test::add_tiny_tensor(pieces, name, shape);
  });
  files.push_back(pieces.bytes());
  for (const char* name :
       {"qwen35moe", "qwen35", "qwen3next", "deepseek2", "deepseek2-legacy", "glm4moe", "glm4",
        "gpt-oss", "minimax-m2", "olmoe", "mixtral", "llama", "gemma4"}) {
    files.push_back(
        read_text_file(test::data_path(std::string("fixtures/gguf-") + name + "/model.gguf")));
  }
  return files;
}

// Bytes of one kind become others of that kind more often than noise.
void mutate(std::string& file, std::size_t header, std::mt19937_64& random) {
  constexpr std::uint64_t kNumbers[] = {
      0, 1, 2, 3, 4, 7, 8, 9, 12, 255, 32, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 20, ~std::uint64_t{0}};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t at = below(std::min(header, file.size()));
  switch (below(8)) {
    case 0:  // a bit
      file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
      break;
    case 1:  // a byte
      file[at] = static_cast<char>(random());
      break;
    case 2:
    case 3: {  // a number
      const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
      const std::size_t bytes = std::min<std::size_t>(below(2) == 0 ? 4 : 8, file.size() - at);
      std::memcpy(file.data() + at, &number, bytes);
      break;
    }
    case 4:  // some are gone
      file.erase(at, 1 + below(16));
      break;
    case 5:  // or there twice
      file.insert(at, file.substr(at, 1 + below(64)));
      break;
    case 6: {  // two places are exchanged
      const std::size_t other = below(std::min(header, file.size()));
      const std::size_t n = std::min(1 + below(16), file.size() - std::max(at, other));
      std::swap_ranges(file.begin() + static_cast<std::ptrdiff_t>(at),
                       file.begin() + static_cast<std::ptrdiff_t>(at + std::min(n, header)),
                       file.begin() + static_cast<std::ptrdiff_t>(other));
      break;
    }
    default:  // a small change of a number
      file[at] = static_cast<char>(file[at] + (below(2) == 0 ? 1 : -1));
  }
}

// Everything that can be made of a file without a pass.
void use(const std::string& path) {
  const auto source = open_source(path);
  const ModelDescription model = describe_model(*source);
  ASSERT_GT(model.config.n_layers(), 0);
  if (source->text().gguf.empty()) return;
  const Tokenizer tokenizer = Tokenizer::from_gguf_file(source->text().gguf);
  tokenizer.decode(tokenizer.encode_markup("ab <|im_end|>\n"));
}

TEST(GgufMutations, OpenOrAreRefused) {
  const std::vector<std::string> files = originals();
  const TempDir dir;
  const std::string path = dir.file("model.gguf");
  std::vector<std::size_t> headers;
  for (const std::string& file : files) {
    dir.write("model.gguf", file);
    ASSERT_NO_THROW(use(path));
    headers.push_back(GgufHeader(path).data_begin());
  }
  // Windows of the reader, compiled patterns of the tokenizer, and tables twice the file's size.
  constexpr std::size_t kFixed = 512u << 10, kFactor = 8;
  std::mt19937_64 random(20260101);
  int n_opened = 0, n_refused = 0;
  for (int i = 0; i < n_mutations(); ++i) {
    const std::size_t which = static_cast<std::size_t>(i) % files.size();
    std::string file = files[which];
    for (std::size_t n = 1 + random() % 3; n > 0; --n) mutate(file, headers[which], random);
    if (random() % 16 == 0) file.resize(static_cast<std::size_t>(random() % file.size()));
    dir.write("model.gguf", file);
    largest_allocation = 0;
    try {
      use(path);
      ++n_opened;
    } catch (const Error&) {
      ++n_refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "mutation " << i << ": " << error.what();
      dir.write("kept.gguf", file);
    }
    ASSERT_LE(largest_allocation, kFixed + kFactor * file.size()) << "mutation " << i;
  }
  EXPECT_GT(n_opened, n_mutations() / 50);
  EXPECT_GT(n_refused, n_mutations() / 2);
}

}  // namespace
}  // namespace moeflux
