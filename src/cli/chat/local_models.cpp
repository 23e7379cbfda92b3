#include "cli/chat/local_models.h"

#include "base/error.h"

namespace moeflux::cli {

void ChatBackend::use_model(const std::string& /*name*/,
                            const std::function<bool()>& /*cancelled*/) {
  fail(Errc::Unsupported, "there is no other model here");
}

LocalBackend& LocalModels::now() const {
  if (!backend_) fail(Errc::NotFound, "no model is in memory; /model NAME loads one");
  return *backend_;
}

LocalModels::~LocalModels() {
  if (backend_) opener_.close(*backend_);
}

void LocalModels::use_model(const std::string& name, const std::function<bool()>& /*cancelled*/) {
  const std::string path = opener_.find(name);
  if (path == path_ && backend_) return;
  if (backend_) opener_.close(*backend_);
  backend_.reset();
  try {
    backend_ = opener_.open(path);
  } catch (...) {
    backend_ = opener_.open(path_);
    throw;
  }
  path_ = path;
}

}  // namespace moeflux::cli
