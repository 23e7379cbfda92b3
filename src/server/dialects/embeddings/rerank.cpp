#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "runtime/sampling/log_probabilities.h"
#include "server/dialects/embeddings/embeddings.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

std::string read_document(const RequestFields& fields, const std::string& where,
                          const Json& document) {
  if (document.is_string()) return document.get<std::string>();
  if (document.is_object()) {
    return RequestFields(document, where + ".").required_string("text");
  }
  fields.refuse(where, "must be a text, or an object with one");
}

// The tokens that are one of the words, or that one of them begins with.
struct WordTokens {
  std::vector<TokenId> whole, first;
};

void sort_out(std::vector<TokenId>& tokens) {
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
}

WordTokens tokens_of(const Tokenizer& tokenizer, std::initializer_list<const char*> words) {
  WordTokens result;
  for (const char* word : words) {
    const std::vector<TokenId> tokens = tokenizer.encode_data(word);
    if (tokens.empty()) continue;
    if (tokens.size() == 1) result.whole.push_back(tokens.front());
    result.first.push_back(tokens.front());
  }
  sort_out(result.whole);
  sort_out(result.first);
  return result;
}

double log_sum(const LogProbabilities& probabilities, const std::vector<TokenId>& tokens) {
  double sum = 0, top = -std::numeric_limits<double>::infinity();
  for (const TokenId token : tokens)
    top = std::max(top, static_cast<double>(probabilities.of(token)));
  if (std::isinf(top)) return top;
  for (const TokenId token : tokens)
    sum += std::exp(static_cast<double>(probabilities.of(token)) - top);
  return top + std::log(sum);
}

}  // namespace

RerankRequest read_rerank_request(const Json& body) {
  const RequestFields fields(body);
  RerankRequest request;
  request.query = fields.required_string("query");
  if (request.query.empty()) fields.refuse("query", "is empty");
  request.is_tei = fields.find("texts") != nullptr;
  const char* name = request.is_tei ? "texts" : "documents";
  const Json& documents = fields.required_array(name);
  if (documents.empty()) fields.refuse(name, "is empty");
  if (documents.size() > kMaxTexts) {
    fields.refuse(name,
                  fmt::format("has {} texts, of which {} may be", documents.size(), kMaxTexts));
  }
  for (std::size_t i = 0; i < documents.size(); ++i)
    request.documents.push_back(
        read_document(fields, fmt::format("{}[{}]", name, i), documents[i]));
  request.n_results = std::min<std::size_t>(
      request.documents.size(),
      static_cast<std::size_t>(
          fields.integer("top_n", 1).value_or(static_cast<std::int64_t>(kMaxTexts))));
  request.returns_documents =
      fields.boolean(request.is_tei ? "return_text" : "return_documents").value_or(false);
  request.raw_scores = fields.boolean("raw_scores").value_or(false);
  request.instruction = fields.string("instruction").value_or("");
  return request;
}

GenerationRequest rerank_prompt(const RerankRequest& request, const std::string& document) {
  GenerationRequest generation;
  const std::string task = request.instruction.empty()
                               ? "Judge whether a document helps to answer a query."
                               : request.instruction;
  generation.messages =
      Json::array({{{"role", "system"}, {"content", task + " Answer with \"yes\" or \"no\"."}},
                   {{"role", "user"},
                    {"content", fmt::format("Query: {}\n\nDocument: {}", request.query, document)}},
                   {{"role", "assistant"}, {"content", "Answer:"}}});
  generation.messages_field = request.is_tei ? "texts" : "documents";
  generation.continues = true;
  generation.thinking.enabled = false;
  return generation;
}

YesOrNo::YesOrNo(const Tokenizer& tokenizer) {
  const WordTokens yes = tokens_of(tokenizer, {" yes", " Yes", "yes", "Yes"});
  const WordTokens no = tokens_of(tokenizer, {" no", " No", "no", "No"});
  const bool has_whole = !yes.whole.empty() && !no.whole.empty();
  yes_ = has_whole ? yes.whole : yes.first;
  no_ = has_whole ? no.whole : no.first;
  std::vector<TokenId> both;
  std::set_intersection(yes_.begin(), yes_.end(), no_.begin(), no_.end(), std::back_inserter(both));
  for (const TokenId token : both) {
    std::erase(yes_, token);
    std::erase(no_, token);
  }
  if (yes_.empty() || no_.empty()) {
    throw HttpError(501, "not_supported_error",
                    "this model's tokenizer does not tell \"yes\" from \"no\" by the first token, "
                    "which is what documents are judged by");
  }
}

float YesOrNo::log_odds(const std::vector<float>& logits) const {
  const LogProbabilities probabilities(logits);
  return static_cast<float>(log_sum(probabilities, yes_) - log_sum(probabilities, no_));
}

std::string rerank_json(const RerankRequest& request, const std::vector<float>& log_odds,
                        const std::string& model, std::int64_t n_tokens) {
  std::vector<std::size_t> order(log_odds.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return log_odds[a] > log_odds[b]; });
  order.resize(std::min(order.size(), request.n_results));
  Json results = Json::array();
  for (const std::size_t i : order) {
    const double odds = static_cast<double>(log_odds[i]);
    const double score = request.raw_scores ? odds : 1 / (1 + std::exp(-odds));
    Json result = {{"index", i}, {request.is_tei ? "score" : "relevance_score", score}};
    if (request.returns_documents && request.is_tei) result["text"] = request.documents[i];
    if (request.returns_documents && !request.is_tei)
      result["document"] = {{"text", request.documents[i]}};
    results.push_back(std::move(result));
  }
  if (request.is_tei) return dump_json(results);
  return dump_json({{"model", model},
                    {"object", "list"},
                    {"usage", {{"prompt_tokens", n_tokens}, {"total_tokens", n_tokens}}},
                    {"results", std::move(results)}});
}

}  // namespace moeflux
