// What a model makes of texts without answering them: embeddings, in the words of OpenAI, Ollama
// and llama-server, and the order of documents by how well they fit a query.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/server_app.h"
#include "server/service/reading_service.h"

namespace moeflux {

inline constexpr std::size_t kMaxTexts = 2048;  // in one request

struct EmbeddingsRequest {
  std::vector<std::vector<TokenId>> texts = {};
  ReadingKind pooling = ReadingKind::Mean;
  std::int64_t dimensions = 0;  // the first so many; 0: all
  bool is_base64 = false;
  bool normalizes = true;
  std::string model = {};  // as the client called it

  std::int64_t n_tokens() const;
};

// `field` has a text, a list of tokens, or a list of such. Throws HttpError 400 with the name of
// what cannot be used. Texts are data: no control token counts in them. `truncates`: what is longer
// than the context is cut to it instead of refused.
EmbeddingsRequest read_embeddings_request(const Json& body, const char* field,
                                          const GenerationService& service, bool truncates = false);

// Cut to `dimensions` and normalized.
void finish_embedding(std::vector<float>& embedding, const EmbeddingsRequest& request);
// "[0.5,-0.25]", or the bytes of little-endian floats as "\"AAAAPw==\"".
std::string embedding_json(const std::vector<float>& embedding, bool is_base64);

struct RerankRequest {
  std::string query, instruction;
  std::vector<std::string> documents;
  std::size_t n_results = 0;
  bool returns_documents = false;
  bool is_tei = false;  // "texts" and a plain list, as Text Embeddings Inference has it
  bool raw_scores = false;
};
RerankRequest read_rerank_request(const Json& body);

// A chat whose answer is begun, so that "yes" or "no" comes next.
GenerationRequest rerank_prompt(const RerankRequest& request, const std::string& document);
// The logarithm of how much likelier "yes" is than "no", by the logits of what comes next.
class YesOrNo {
 public:
  // Throws HttpError 501 for a tokenizer in which both begin with the same token.
  explicit YesOrNo(const Tokenizer& tokenizer);
  float log_odds(const std::vector<float>& logits) const;

 private:
  std::vector<TokenId> yes_, no_;
};
// Results, most relevant first.
std::string rerank_json(const RerankRequest& request, const std::vector<float>& log_odds,
                        const std::string& model, std::int64_t n_tokens);

void add_embedding_routes(ServerApp& app);

}  // namespace moeflux
