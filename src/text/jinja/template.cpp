#include "text/jinja/template.h"

#include <new>

#include "base/error.h"
#include "text/jinja/ast.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"

namespace moeflux::jinja {

Template Template::parse(std::string_view source, std::string name) {
  return Template(std::make_shared<const Tree>(Parser(source, std::move(name)).parse()));
}

MarkedText Template::render(const Json& variables, const RenderOptions& options) const {
  if (!variables.is_object()) {
    fail(Errc::BadInput, "{}: the variables of a template must be a JSON object", tree_->name);
  }
  Runtime runtime(options);
  try {
    return Evaluator(*tree_, runtime, variables).run().take();
  } catch (const Error& error) {
    fail(error.code(), "{}:{}: {}", tree_->name, runtime.line, error.what());
  } catch (const std::bad_alloc&) {
    fail(Errc::LimitExceeded, "{}:{}: no memory left", tree_->name, runtime.line);
  }
}

}  // namespace moeflux::jinja
