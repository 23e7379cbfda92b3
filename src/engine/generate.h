// One answer on one session, from prompt to end: reads the prompt, then runs one pass after the
// other until the answer (answer.h) has ended.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/activity.h"
#include "engine/answer.h"
#include "engine/decoder.h"
#include "engine/prefix/session_sync.h"

namespace moeflux {

struct GenerateOptions {
  DraftOptions drafts = {};  // changes the time an answer takes, never the answer
  // Brings the session to a prefix of the prompt, and keeps others at AnswerRequest::keep_at. Null:
  // the prompt is appended to what the session holds, in one piece.
  SessionSync* sync = nullptr;
  bool keep_answer = false;  // with sync: the end of the answer, too
  // With sync: how many tokens of the prompt must be read, and how many need not be.
  std::function<void(std::int64_t n_new, std::int64_t n_cached)> on_prompt = {};
  AnswerEvents events = {};  // `cancelled` is also asked while the prompt is read
};

struct GenerateResult {
  std::vector<TokenId> tokens;  // without the end token
  std::string text;             // special tokens left out, but for shown_special
  StopReason reason = StopReason::EndToken;
  std::int64_t n_prompt = 0;  // tokens of it that were read
  SyncResult reused;          // and that were not, with sync
  double prefill_seconds = 0;
  double decode_seconds = 0;
  Activity prefill, decode;
  DraftStats drafts;
};

GenerateResult generate(Engine& engine, Session& session, const AnswerRequest& request,
                        const GenerateOptions& options = {});

}  // namespace moeflux
