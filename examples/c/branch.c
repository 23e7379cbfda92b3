/* Reads a text once and continues it in two ways: first from a checkpoint in memory, then from a
 * snapshot in a file, which another process could load as well. Prints the tokens of each.
 *
 *   branch MODEL TEXT SNAPSHOT
 */
#include <moeflux/moeflux.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxTokens = 256, kSteps = 8 };

static void check(int status, const char* what) {
  if (status == MF_OK) return;
  fprintf(stderr, "%s: %s\n", what, mf_last_error_message());
  exit(1);
}

static int32_t most_likely(const float* logits, size_t n) {
  size_t best = 0, i;
  for (i = 1; i < n; ++i) {
    if (logits[i] > logits[best]) best = i;
  }
  return (int32_t)best;
}

/* From where the sequence is: `first`, then what the model finds most likely. */
static void go_on(mf_ctx* ctx, const char* name, int32_t first, float* logits) {
  int32_t token = first;
  int step;
  printf("%s:", name);
  for (step = 0; step < kSteps; ++step) {
    check(mf_eval_token(ctx, token, mf_memory_seq_length(ctx, 0), 0, logits), "token");
    token = most_likely(logits, mf_n_vocab(ctx));
    printf(" %d", (int)token);
  }
  printf("\n");
}

int main(int argc, char** argv) {
  mf_model_params params = mf_model_params_default();
  int32_t tokens[kMaxTokens];
  size_t n = 0;
  float* logits;
  mf_model* model;
  mf_ctx* ctx;
  if (argc != 4) {
    fprintf(stderr, "usage: %s MODEL TEXT SNAPSHOT\n", argv[0]);
    return 2;
  }
  params.path = argv[1];
  params.context_length = 512;
  model = mf_model_open(&params);
  if (model == NULL) check(mf_last_error(), argv[1]);
  ctx = mf_context_new(model, NULL);
  if (ctx == NULL) check(mf_last_error(), "context");
  logits = malloc(mf_n_vocab(ctx) * sizeof(*logits));
  if (logits == NULL) return 1;

  check(mf_tokenize(model, argv[2], strlen(argv[2]), 0, tokens, kMaxTokens, &n), "text");
  check(mf_eval_prompt(ctx, tokens, n, 0, 0, logits), "text");
  check(mf_checkpoint_pos(ctx, n), "checkpoint");
  check(mf_seq_state_save_file(ctx, 0, 3, argv[3]), argv[3]);

  go_on(ctx, "first", 5, logits);
  check(mf_restore_to(ctx, n), "checkpoint");
  go_on(ctx, "second", 6, logits);
  mf_memory_clear(ctx);
  check(mf_seq_state_load_file(ctx, 0, argv[3]), argv[3]);
  go_on(ctx, "first", 5, logits);

  free(logits);
  mf_context_free(ctx);
  mf_model_close(model);
  return 0;
}
