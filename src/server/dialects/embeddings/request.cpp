#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>

#include <fmt/format.h>

#include "server/dialects/base64.h"
#include "server/dialects/embeddings/embeddings.h"
#include "server/dialects/request_fields.h"

namespace moeflux {
namespace {

class TextReader {
 public:
  TextReader(const RequestFields& fields, const char* field, const GenerationService& service,
             bool truncates)
      : fields_(fields), field_(field), service_(service), truncates_(truncates) {}

  std::vector<std::vector<TokenId>> read() {
    const Json* given = fields_.find(field_);
    if (given == nullptr) fields_.refuse(field_, "is missing");
    const bool is_list = given->is_array() && !given->empty();
    const bool is_several =
        is_list && std::none_of(given->begin(), given->end(),
                                [](const Json& each) { return each.is_number(); });
    if (!is_several) {
      add(*given, field_);
      return std::move(texts_);
    }
    if (given->size() > kMaxTexts)
      fields_.refuse(field_,
                     fmt::format("has {} texts, of which {} may be", given->size(), kMaxTexts));
    for (std::size_t i = 0; i < given->size(); ++i)
      add((*given)[i], fmt::format("{}[{}]", field_, i));
    return std::move(texts_);
  }

 private:
  void add(const Json& text, const std::string& where) {
    std::vector<TokenId> tokens;
    if (text.is_string()) {
      tokens = encode(text, where);
      if (!tokens.empty()) tokens = service_.tokenizer().with_special_tokens(std::move(tokens));
    } else if (text.is_array()) {
      for (const Json& part : text) {
        if (!part.is_string()) {
          tokens.push_back(token(part, where));
          continue;
        }
        const std::vector<TokenId> more = encode(part, where);
        tokens.insert(tokens.end(), more.begin(), more.end());
      }
    } else {
      fields_.refuse(where, "must be a text or a list of tokens");
    }
    if (tokens.empty()) fields_.refuse(where, "is empty");
    const auto context = static_cast<std::size_t>(service_.engine().context_length());
    if (truncates_ && tokens.size() > context) tokens.resize(context);
    service_.prompt_maker().check_length(tokens.size(), where);
    texts_.push_back(std::move(tokens));
  }

  std::vector<TokenId> encode(const Json& text, const std::string& where) const {
    return naming(where, [&] {
      return service_.tokenizer().encode_data(text.get_ref<const std::string&>());
    });
  }

  TokenId token(const Json& value, const std::string& where) const {
    const std::int64_t n_vocab = service_.engine().config().n_vocab;
    if (!value.is_number_integer() || value.get<std::int64_t>() < 0 ||
        value.get<std::int64_t>() >= n_vocab) {
      fields_.refuse(where, fmt::format("has {}, which is no token of this model",
                                        dump_json(value).substr(0, 80)));
    }
    return value.get<TokenId>();
  }

  const RequestFields& fields_;
  const char* field_;
  const GenerationService& service_;
  const bool truncates_;
  std::vector<std::vector<TokenId>> texts_;
};

}  // namespace

std::int64_t EmbeddingsRequest::n_tokens() const {
  return std::accumulate(texts.begin(), texts.end(), std::int64_t{0},
                         [](std::int64_t n, const auto& text) { return n + std::ssize(text); });
}

EmbeddingsRequest read_embeddings_request(const Json& body, const char* field,
                                          const GenerationService& service, bool truncates) {
  const RequestFields fields(body);
  if (!truncates) service.prompt_maker().check_texts(body, field);
  EmbeddingsRequest request;
  request.texts = TextReader(fields, field, service, truncates).read();
  const std::string pooling = fields.string("pooling").value_or("mean");
  if (pooling != "mean" && pooling != "last")
    fields.refuse_value("pooling", pooling, "mean or last");
  request.pooling = pooling == "mean" ? ReadingKind::Mean : ReadingKind::Last;
  const std::string format = fields.string("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    fields.refuse_value("encoding_format", format, "float or base64");
  request.is_base64 = format == "base64";
  request.dimensions =
      fields.integer("dimensions", 1, service.engine().config().d_model).value_or(0);
  request.model = fields.string("model").value_or("");
  return request;
}

void finish_embedding(std::vector<float>& embedding, const EmbeddingsRequest& request) {
  if (request.dimensions > 0) embedding.resize(static_cast<std::size_t>(request.dimensions));
  if (request.normalizes) normalize(embedding);
}

std::string embedding_json(const std::vector<float>& embedding, bool is_base64) {
  if (is_base64) {
    std::string bytes;
    bytes.reserve(embedding.size() * sizeof(float));
    for (const float value : embedding) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 255);
    }
    return fmt::format("\"{}\"", to_base64(bytes));
  }
  std::string text = "[";
  for (const float value : embedding)
    fmt::format_to(std::back_inserter(text), "{}{}", text.size() > 1 ? "," : "", value);
  return text + "]";
}

}  // namespace moeflux
