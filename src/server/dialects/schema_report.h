// Says in headers of an answer what of the demanded schema decoding did not keep, and what a check
// of the whole answer found:
//
//   X-Schema-Not-Enforced: /properties/tags/uniqueItems      keywords, as paths of the schema
//   X-Schema-Violation: /tags: uniqueItems                   only where the answer is not valid
//
// The second cannot be told of a streamed answer, whose head was sent before.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "base/json.h"
#include "server/http/exchange.h"
#include "server/service/generation.h"
#include "server/service/generation_service.h"

namespace moeflux {

class SchemaReport {
 public:
  explicit SchemaReport(ExchangePtr exchange) : exchange_(std::move(exchange)) {}

  // The request was accepted; nothing of its answer is written.
  void begin(GenerationService& service, const GenerationRequest& request);
  void take(int choice, const GenerationEvent& event);  // before the dialect does

 private:
  std::string violation(const std::string& answer) const;

  const ExchangePtr exchange_;
  Json schema_ = nullptr;  // null: nothing is left to check
  std::mutex mutex_;
  std::map<int, std::string> answers_;  // so far, of each choice
};

// Paths as a header can have them: other characters than those of names are percent-encoded.
std::string header_text(std::string_view text);

}  // namespace moeflux
