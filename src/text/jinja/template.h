// A chat template: parsed once, rendered many times, from any thread.
//
// It speaks the Jinja of Hugging Face transformers: trim_blocks and lstrip_blocks, no escaping,
// loop controls, the generation tag, their tojson, raise_exception and strftime_now. The result
// says which bytes came from the variables. Templates are untrusted: see RenderLimits.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "text/chat/marked_text.h"
#include "text/jinja/runtime.h"

namespace moeflux::jinja {

struct Tree;

class Template {
 public:
  // `name` says in errors which template it is. Throws BadInput for what cannot be parsed.
  static Template parse(std::string_view source, std::string name);

  // `variables` is an object. All of it is data, except top-level strings whose name ends in
  // "_token": those are the special tokens of the model.
  // Throws BadInput when the template fails or calls raise_exception (the message contains its
  // text), LimitExceeded when it costs more than `options` allow.
  MarkedText render(const Json& variables, const RenderOptions& options = {}) const;

 private:
  explicit Template(std::shared_ptr<const Tree> tree) : tree_(std::move(tree)) {}

  std::shared_ptr<const Tree> tree_;
};

}  // namespace moeflux::jinja
