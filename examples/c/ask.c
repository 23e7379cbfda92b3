/* Asks a model one question and prints the answer as it comes.
 *
 *   ask MODEL QUESTION
 */
#include <moeflux/moeflux.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char* what) {
  fprintf(stderr, "%s: %s (%s)\n", what, mf_last_error_message(), mf_status_name(mf_last_error()));
  return 1;
}

static int print_text(const char* text, size_t n_bytes, void* user) {
  (void)user;
  fwrite(text, 1, n_bytes, stdout);
  fflush(stdout);
  return 0; /* go on */
}

/* The prompt's tokens, to be freed by the caller; NULL on failure. */
static int32_t* encode(const mf_model* model, const char* question, size_t* n) {
  const mf_message message = {"user", question};
  mf_chat_params chat = mf_chat_params_default();
  int32_t* tokens;
  chat.messages = &message;
  chat.n_messages = 1;
  chat.variables_json = "{\"enable_thinking\": false}";
  if (mf_tokenize_chat(model, &chat, NULL, 0, n) != MF_ERROR_BUFFER_TOO_SMALL) return NULL;
  tokens = malloc(*n * sizeof(*tokens));
  if (tokens == NULL) return NULL;
  if (mf_tokenize_chat(model, &chat, tokens, *n, n) == MF_OK) return tokens;
  free(tokens);
  return NULL;
}

static int ask(mf_model* model, const char* question) {
  mf_generate_params params = mf_generate_params_default();
  mf_generate_result result = {0};
  size_t n_prompt = 0;
  int32_t* prompt = encode(model, question, &n_prompt);
  mf_ctx* ctx;
  int failed;
  if (prompt == NULL) return fail("prompt");
  ctx = mf_context_new(model, NULL);
  if (ctx == NULL) {
    free(prompt);
    return fail("context");
  }
  params.on_text = print_text;
  result.struct_size = sizeof(result);
  failed = mf_generate(ctx, 0, prompt, n_prompt, &params, &result) != MF_OK && fail("answer");
  if (!failed) {
    printf("\n");
    fprintf(stderr, "%zu tokens in %.2f s\n", result.n_tokens, result.decode_seconds);
  }
  mf_context_free(ctx);
  free(prompt);
  return failed;
}

int main(int argc, char** argv) {
  mf_model_params params = mf_model_params_default();
  mf_model* model;
  int failed;
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL QUESTION\n", argv[0]);
    return 2;
  }
  params.path = argv[1];
  params.context_length = 512;
  model = mf_model_open(&params);
  if (model == NULL) return fail(argv[1]);
  failed = ask(model, argv[2]);
  mf_model_close(model);
  return failed;
}
