// Models of this program, one at a time: the one a chat began with, and those it changes to.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/chat/local_backend.h"

namespace moeflux::cli {

class LocalModels : public ChatBackend {
 public:
  struct Opener {
    // The path of what the user calls so; throws Error where it is no model.
    std::function<std::string(const std::string& name)> find;
    std::function<std::unique_ptr<LocalBackend>(const std::string& path)> open;
    std::function<void(LocalBackend&)> close;  // before a model leaves the memory
  };
  LocalModels(Opener opener, const std::string& path)
      : opener_(std::move(opener)), path_(path), backend_(opener_.open(path)) {}
  ~LocalModels() override;
  LocalModels(const LocalModels&) = delete;
  LocalModels& operator=(const LocalModels&) = delete;

  std::string model() const override { return now().model(); }
  std::int64_t context_length() const override { return now().context_length(); }
  std::optional<SamplingParams> defaults() const override { return now().defaults(); }
  ChatReply answer(const ChatQuestion& question, const ChatEvents& events) override {
    return now().answer(question, events);
  }
  void between_turns(const std::function<bool()>& cancelled) override {
    now().between_turns(cancelled);
  }
  std::string statistics() const override { return now().statistics(); }
  std::string warning() override { return now().warning(); }
  // Two do not fit into the memory of one: the old model leaves it first, and comes back where the
  // new one cannot be opened.
  void use_model(const std::string& name, const std::function<bool()>& cancelled) override;

 private:
  LocalBackend& now() const;  // throws Error where none could be opened

  Opener opener_;
  std::string path_;
  std::unique_ptr<LocalBackend> backend_;
};

}  // namespace moeflux::cli
