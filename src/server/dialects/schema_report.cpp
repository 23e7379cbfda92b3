#include "server/dialects/schema_report.h"

#include <algorithm>
#include <variant>

#include "text/grammar/schema_check.h"

namespace moeflux {
namespace {

constexpr std::size_t kMaxListed = 20;         // keywords in the header
constexpr std::size_t kMaxPathBytes = 200;     // of each
constexpr std::size_t kMaxChecked = 1u << 20;  // bytes of an answer; a longer one is not checked

}  // namespace

std::string header_text(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF", kPlain = "-._~$/: ";
  std::string out;
  for (const char c : text.substr(0, kMaxPathBytes)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       kPlain.find(c) != std::string_view::npos;
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte / 16], kHex[byte % 16]};
    }
  }
  return out;
}

void SchemaReport::begin(GenerationService& service, const GenerationRequest& request) {
  if (request.output.kind != OutputFormat::Kind::JsonSchema) return;
  const std::vector<std::string> keywords = service.unenforced(request);
  if (keywords.empty()) return;
  std::string list;
  for (std::size_t i = 0; i < std::min(keywords.size(), kMaxListed); ++i) {
    list += (i > 0 ? ", " : "") + header_text(keywords[i]);
  }
  if (keywords.size() > kMaxListed) list += ", ...";
  exchange_->add_header("X-Schema-Not-Enforced", std::move(list));
  schema_ = request.output.schema;
}

void SchemaReport::take(int choice, const GenerationEvent& event) {
  if (schema_.is_null()) return;
  const std::lock_guard lock(mutex_);
  std::string& answer = answers_[choice];
  if (const auto* content = std::get_if<ContentDelta>(&event)) {
    if (answer.size() <= kMaxChecked) answer += content->text;
  }
  const auto* ended = std::get_if<GenerationEnded>(&event);
  if (ended == nullptr || ended->reason != FinishReason::Stop || answer.size() > kMaxChecked)
    return;
  if (const std::string why = violation(answer); !why.empty()) {
    const std::string which = choice > 0 ? std::to_string(choice) + " " : "";
    exchange_->add_header("X-Schema-Violation", which + header_text(why));
  }
}

std::string SchemaReport::violation(const std::string& answer) const {
  try {
    return find_schema_violation(schema_, parse_json(answer, "the answer")).value_or("");
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace moeflux
