/* moeflux: runs mixture-of-experts language models that are larger than memory. The C API.
 *
 * Objects
 *   mf_model    a loaded checkpoint: weights, expert cache, tokenizer. Never changes by evaluation.
 *   mf_ctx      a context on a model: sequences of tokens and what the model remembers of them.
 *               A model has any number of contexts, a context any number of sequences; the memory
 *               of all sequences together is planned when the model is opened.
 *   mf_sampler  chooses tokens from logits.
 *
 * Failure
 *   Functions that return mf_status or int (unless they say otherwise) return 0 for success and an
 *   mf_status otherwise; functions that return a pointer return NULL. mf_last_error() and
 *   mf_last_error_message() then tell this thread more. Unless a function says otherwise, a call
 *   that fails has changed nothing. A NULL where an object is needed is MF_ERROR_NULL_ARGUMENT.
 *   Nothing is ever printed, and no signal handler is installed.
 *
 * Threads
 *   A model may be used by all threads. A context or a sampler is used by one thread at a time, by
 *   any thread; only mf_cancel() and mf_cancel_clear() may be called while another thread is in a
 *   call on the same context. Contexts of one model take turns: a call that evaluates waits until
 *   the one of another context has returned. Callbacks run on the calling thread, must not throw
 *   or jump out, and must not evaluate on the same model (MF_ERROR_BUSY); text functions,
 *   mf_cancel() and reading a sequence are fine.
 *
 * Results
 *   Logits depend on the tokens and the model alone: not on how tokens are split over calls, on
 *   other sequences, on threads or on the cache. A restored state continues bit for bit.
 *
 * Structs begin with struct_size, the sizeof the caller was compiled with. The *_default()
 * functions fill it in; a struct may grow at its end in later versions without breaking callers.
 * Strings are UTF-8 and end with a NUL, unless a length stands beside them; the library copies
 * what it keeps.
 *
 * Names, argument order and meaning of the calls of the original moeflux are kept (mf_init_model to
 * mf_state_load); what differs is said at each.
 */
#ifndef MOEFLUX_H
#define MOEFLUX_H

#include <stddef.h>
#include <stdint.h>

#define MOEFLUX_VERSION_MAJOR 0
#define MOEFLUX_VERSION_MINOR 1
#define MOEFLUX_VERSION_PATCH 0

#if defined(__GNUC__)
#define MF_API __attribute__((visibility("default")))
#else
#define MF_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mf_model mf_model;
typedef struct mf_ctx mf_ctx;
typedef struct mf_sampler mf_sampler;

/* Numbers stay; a later version may add some. */
typedef enum mf_status {
  MF_OK = 0,
  MF_ERROR_BAD_INPUT = 1,        /* an argument, file, template or message is malformed */
  MF_ERROR_UNSUPPORTED = 2,      /* well-formed, but not something this library does */
  MF_ERROR_NOT_FOUND = 3,        /* a file, checkpoint or name that must exist does not */
  MF_ERROR_IO = 4,               /* the system refused or failed a read or write */
  MF_ERROR_OUT_OF_MEMORY = 5,    /* the memory that is allowed is not enough */
  MF_ERROR_LIMIT = 6,            /* a documented bound was reached: the context is full, ... */
  MF_ERROR_CANCELLED = 7,        /* by mf_cancel() or a callback */
  MF_ERROR_INTERNAL = 8,         /* a bug of the library; please report the message */
  MF_ERROR_NULL_ARGUMENT = 9,    /* an argument that is needed is NULL */
  MF_ERROR_BAD_POSITION = 10,    /* the position is not the length of the sequence */
  MF_ERROR_NEEDS_REBUILD = 11,   /* the state of that position is gone: mf_memory_seq_rebuild() */
  MF_ERROR_BROKEN_SEQUENCE = 12, /* an earlier evaluation failed half-way: go back or clear */
  MF_ERROR_BUFFER_TOO_SMALL = 13,
  MF_ERROR_BUSY = 14,         /* called from a callback of the same model */
  MF_ERROR_BAD_SNAPSHOT = 15, /* not a snapshot, truncated or damaged */
  MF_ERROR_OTHER_MODEL = 16   /* a snapshot of another model */
} mf_status;

/* Of the last call on this thread that could fail; MF_OK and "" when it succeeded. The message says
 * what is wrong, where (file, field, number) and what to do. It is valid until this thread's next
 * call. */
MF_API mf_status mf_last_error(void);
MF_API const char* mf_last_error_message(void);
MF_API const char* mf_status_name(mf_status status); /* "bad input", ...; never NULL */
MF_API const char* mf_version(void);                 /* "0.1.0", of the library */

/* Called with what is done of a total: bytes while a model loads, tokens while a prompt is read. A
 * result other than 0 ends the call with MF_ERROR_CANCELLED. */
typedef int (*mf_progress_fn)(uint64_t done, uint64_t total, void* user);

/* ---- Models ---------------------------------------------------------------------------------- */

enum { MF_PRECISION_FINE = 0, MF_PRECISION_EXACT = 1, MF_PRECISION_FAST = 2 };
enum { MF_KV_F32 = 0, MF_KV_F16 = 1, MF_KV_BF16 = 2, MF_KV_Q8 = 3 };

typedef struct mf_model_params {
  size_t struct_size;
  /* A directory with a checkpoint of any layout, or a .safetensors file. Or NULL, and the four
   * files of the flash-moe layout by their own paths, as mf_init_model() takes them. */
  const char* path;
  const char* weights_path;
  const char* manifest_path;
  const char* vocab_path;
  const char* experts_dir;
  int32_t experts_per_token; /* with experts_dir: 0, or fewer than the model's own */
  int32_t use_2bit;          /* with experts_dir: packed_experts_2bit instead of packed_experts */

  int32_t n_threads;        /* 0: every core this process may use */
  int32_t max_sequences;    /* of all contexts together, alive at a time (default 1) */
  int32_t max_checkpoints;  /* that every sequence has memory for (default 4) */
  int32_t precision;        /* MF_PRECISION_*: activations of 16 bits, f32, 8 bits */
  int32_t kv_type;          /* MF_KV_*: keys and values of the sequences */
  int32_t lookahead;        /* experts per token to prefetch; -1: as many as pay (default) */
  int32_t preload;          /* not 0: fill the expert cache before mf_model_open() returns */
  int32_t elastic;          /* not 0: the cache makes room when memory gets short (default) */
  int32_t max_drafts;       /* tokens mf_generate() may draft; -1: as memory allows (default) */
  int64_t context_length;   /* of a sequence, in tokens; 0: the model's own, at most 16384 */
  int64_t max_batch;        /* tokens per pass; 0: as many as memory suggests */
  uint64_t memory_bytes;    /* ceiling for everything; 0: what is free, less a reserve */
  const char* cpu_isa;      /* "scalar", "avx2", ...; NULL: the best there is */
  const char* cache_policy; /* which experts to evict first; NULL: the default */
  const char* profile_directory; /* where usage of experts is kept; NULL: nowhere */
  const char* prefix_store;      /* a directory for mf_memory_seq_remember(); NULL: memory only */
  uint64_t prefix_store_bytes;   /* that it may take of the disk; 0: 8 GiB */
  mf_progress_fn progress;       /* while loading; may be NULL */
  void* progress_user;
} mf_model_params;

MF_API void mf_model_params_init(mf_model_params* params, size_t struct_size);
static inline mf_model_params mf_model_params_default(void) {
  mf_model_params params;
  mf_model_params_init(&params, sizeof(params));
  return params;
}

/* NULL when anything is unsupported, damaged, missing or too large: all of that is found here, not
 * later. The caller owns the model. */
MF_API mf_model* mf_model_open(const mf_model_params* params);
/* Contexts and samplers may outlive it; the memory is freed with the last of them. NULL is fine. */
MF_API void mf_model_close(mf_model* model);

MF_API size_t mf_model_n_vocab(const mf_model* model);            /* 0 for NULL */
MF_API size_t mf_model_n_ctx(const mf_model* model);              /* tokens a sequence holds */
MF_API int32_t mf_model_eos(const mf_model* model);               /* -1 when the model names none */
MF_API int mf_model_is_end(const mf_model* model, int32_t token); /* 1: this token ends an answer */
MF_API const char* mf_model_name(const mf_ctx* ctx); /* the last part of its path; lives with ctx */

/* ---- Contexts -------------------------------------------------------------------------------- */

typedef struct mf_context_params {
  size_t struct_size;
  int32_t max_sequences;   /* of this context, alive at a time (default 1) */
  int32_t max_checkpoints; /* of each sequence; -1: those of the model (default) */
} mf_context_params;

MF_API void mf_context_params_init(mf_context_params* params, size_t struct_size);
static inline mf_context_params mf_context_params_default(void) {
  mf_context_params params;
  mf_context_params_init(&params, sizeof(params));
  return params;
}

/* `params` may be NULL. MF_ERROR_OUT_OF_MEMORY when the model was opened for fewer sequences. */
MF_API mf_ctx* mf_context_new(mf_model* model, const mf_context_params* params);
MF_API void mf_context_free(mf_ctx* ctx);             /* NULL is fine */
MF_API mf_model* mf_context_model(const mf_ctx* ctx); /* valid as long as ctx; not to be closed */

/* The original's way: model and context in one, with one sequence. experts_dir holds packed_experts
 * (or packed_experts_2bit, when use_2bit). experts_per_tok is brought into 1 .. the model's own;
 * vocab_path may be NULL. Where config.json and tokenizer.json lie beside one of the files or in
 * ../mlx, they are used. Unlike the original, missing or wrong files are refused here, and any
 * number of contexts may live. mf_free_model() frees what this or mf_context_new() returned. */
MF_API mf_ctx* mf_init_model(const char* weights_path, const char* manifest_path,
                             const char* vocab_path, const char* experts_dir, int experts_per_tok,
                             int use_2bit);
MF_API void mf_free_model(mf_ctx* ctx);

MF_API size_t mf_n_vocab(const mf_ctx* ctx); /* 0 for NULL */
MF_API size_t mf_n_ctx(const mf_ctx* ctx);
MF_API int32_t mf_eos(const mf_ctx* ctx);

/* ---- Evaluation ------------------------------------------------------------------------------
 * A sequence is named by a number seq_id >= 0 and begins to exist when it is first evaluated or
 * loaded; MF_ERROR_LIMIT when that is more than the context may have. Calls that do not name a
 * sequence work on number 0. */

/* Appends n tokens to the sequence and writes the logits after the last one, mf_n_vocab() floats
 * (NULL: not wanted). start_pos must be the length of the sequence, else MF_ERROR_BAD_POSITION. n =
 * 0 does nothing and leaves the logits alone. The prompt is read in passes: after
 * MF_ERROR_CANCELLED or MF_ERROR_IO the sequence holds those that were complete
 * (mf_memory_seq_length). Only where memory has no room for a copy of a recurrent model's state, or
 * the pass was one of mf_eval_token(), may it be broken: it then refuses to go on until it is
 * cleared, taken back to a checkpoint or rebuilt. */
MF_API int mf_eval_prompt(mf_ctx* ctx, const int32_t* tokens, size_t n, size_t start_pos,
                          int seq_id, float* logits);
MF_API int mf_eval_token(mf_ctx* ctx, int32_t token, size_t pos, int seq_id, float* logits);

/* Ends the call under way on this context with MF_ERROR_CANCELLED, a prompt before its next layer,
 * generation before its next token; when there is none, the next one that evaluates. From any
 * thread, also from a signal handler. */
MF_API void mf_cancel(mf_ctx* ctx);
MF_API void mf_cancel_clear(mf_ctx* ctx); /* takes back a mf_cancel() that nothing has heeded yet */

/* Told before each pass of a prompt and after the last. NULL: nobody. */
MF_API mf_status mf_set_progress(mf_ctx* ctx, mf_progress_fn progress, void* user);

/* ---- Memory of a sequence --------------------------------------------------------------------
 * Keys and values can be cut back to any position. The recurrent state of linear layers cannot: a
 * model that has such layers goes back only to 0, to the present length, or to a checkpoint. */

MF_API void mf_memory_clear(mf_ctx* ctx); /* empties all sequences, drops their checkpoints */

/* Keeps positions [0, p0). p0 < 0 is 0; p1 < 0 or beyond the end is the end. Returns 1 for success
 * and 0 for failure, having changed nothing then: MF_ERROR_NEEDS_REBUILD where the state of p0 is
 * gone, MF_ERROR_UNSUPPORTED for a hole in the middle (p0 < p1 < length). Checkpoints above p0 are
 * dropped. seq_id -1: all sequences, only with p0 <= 0. */
MF_API int mf_memory_seq_rm(mf_ctx* ctx, int seq_id, int p0, int p1);

/* Takes the sequence to the position by evaluating its own tokens again from the nearest state that
 * is left; also mends a broken one. Cancelled or failed, it is where the last whole pass ended.
 * MF_ERROR_UNSUPPORTED when a snapshot without tokens was loaded below that position. */
MF_API mf_status mf_memory_seq_rebuild(mf_ctx* ctx, int seq_id, size_t pos);
/* The largest position <= pos that mf_memory_seq_rm() can cut back to; -1 on error. */
MF_API int64_t mf_memory_seq_nearest(const mf_ctx* ctx, int seq_id, size_t pos);

/* The largest position: length - 1, and -1 when the sequence is empty or unknown. (The original
 * promised that and returned the length.) */
MF_API int mf_memory_seq_pos_max(mf_ctx* ctx, int seq_id);
MF_API size_t mf_memory_seq_length(const mf_ctx* ctx, int seq_id); /* 0 when unknown */

/* The sequence's tokens: -1 where a snapshot did not say. *n receives how many there are;
 * MF_ERROR_BUFFER_TOO_SMALL when that is more than the capacity. */
MF_API mf_status mf_memory_seq_tokens(const mf_ctx* ctx, int seq_id, int32_t* tokens,
                                      size_t capacity, size_t* n);
/* `to` becomes a copy of `from`, without its checkpoints. */
MF_API mf_status mf_memory_seq_cp(mf_ctx* ctx, int from, int to);
MF_API mf_status mf_memory_seq_keep(mf_ctx* ctx, int seq_id); /* frees all others */
MF_API mf_status mf_memory_seq_free(mf_ctx* ctx, int seq_id); /* its memory too; unknown: fine */

/* Takes the sequence to the longest prefix of the tokens that need not be evaluated again (what
 * it holds, a checkpoint, or what the prefix store has), and sets *n_kept to its length, at most n
 * - 1: the rest is to be evaluated, the last token always, for its logits. */
MF_API mf_status mf_memory_seq_sync(mf_ctx* ctx, int seq_id, const int32_t* tokens, size_t n,
                                    size_t* n_kept);
/* The sequence is at a place worth coming back to, such as the end of a turn: sets a checkpoint and
 * writes what the prefix store lacks, for all contexts and processes, unless it is too little to be
 * worth a file (fewer than 64 tokens). A store that is full, broken or too slow is no failure:
 * later, more is evaluated. */
MF_API mf_status mf_memory_seq_remember(mf_ctx* ctx, int seq_id);

/* Checkpoints: states a sequence can go back to, bit for bit. At most max_checkpoints of them; the
 * oldest goes first, but never one at position 0. They belong to the tokens before them: going back
 * drops those above. The forms without seq_id are for sequence 0. */
MF_API mf_status mf_seq_checkpoint(mf_ctx* ctx, int seq_id, size_t pos); /* pos: its length */
MF_API mf_status mf_seq_restore(mf_ctx* ctx, int seq_id, size_t pos);    /* else _NOT_FOUND */
MF_API mf_status mf_seq_forget(mf_ctx* ctx, int seq_id, size_t pos);     /* none there: fine */
MF_API size_t mf_seq_checkpoint_count(const mf_ctx* ctx, int seq_id);
MF_API mf_status mf_checkpoint_pos(mf_ctx* ctx, size_t pos);
MF_API mf_status mf_restore_to(mf_ctx* ctx, size_t pos);
MF_API mf_status mf_forget_pos(mf_ctx* ctx, size_t pos);
MF_API size_t mf_checkpoint_count(const mf_ctx* ctx);
/* For all sequences, from the next checkpoint on. More than the model was opened for need memory
 * of their own: MF_ERROR_OUT_OF_MEMORY when there is none. */
MF_API mf_status mf_set_max_checkpoints(mf_ctx* ctx, size_t count);

/* ---- Snapshots -------------------------------------------------------------------------------
 * All a model remembers of a sequence, as bytes (docs/SNAPSHOT.md). Version 3, our own, has the
 * tokens, the kind of model, the type of keys and values and checksums. Versions 1 and 2 are those
 * of the original: shapes and f32 values only, so a snapshot of another model with the same shape
 * is not recognised, and tokens read from one are -1. Loading tells the versions apart. Everything
 * is checked before the sequence changes; its checkpoints are dropped. */

MF_API size_t mf_state_size(const mf_ctx* ctx); /* bytes of version 3 now; 0 for NULL */
MF_API int64_t mf_state_save(mf_ctx* ctx, void* buffer, size_t size); /* bytes, -1 on error */
MF_API int mf_state_load(mf_ctx* ctx, const void* buffer, size_t size);

MF_API size_t mf_seq_state_size(const mf_ctx* ctx, int seq_id, int version); /* 0 on error */
MF_API int64_t mf_seq_state_save(mf_ctx* ctx, int seq_id, int version, void* buffer, size_t size);
MF_API mf_status mf_seq_state_load(mf_ctx* ctx, int seq_id, const void* buffer, size_t size);
/* The file appears complete or not at all. */
MF_API mf_status mf_seq_state_save_file(mf_ctx* ctx, int seq_id, int version, const char* path);
MF_API mf_status mf_seq_state_load_file(mf_ctx* ctx, int seq_id, const char* path);

/* ---- Text ------------------------------------------------------------------------------------
 * Functions that fill a buffer set *n to what is needed also when they fail with
 * MF_ERROR_BUFFER_TOO_SMALL; the buffer may be NULL when its capacity is 0. Texts get a NUL after
 * their *n bytes, for which there must be room. */

enum {
  MF_TEXT_CONTROL = 1,     /* mf_tokenize: control tokens written in the text count as such */
  MF_TEXT_ADD_SPECIAL = 2, /* mf_tokenize: with what the model puts around a text */
  MF_TEXT_SKIP_SPECIAL = 4 /* mf_detokenize: leaves control tokens out */
};

MF_API mf_status mf_tokenize(const mf_model* model, const char* text, size_t text_bytes, int flags,
                             int32_t* tokens, size_t capacity, size_t* n);
MF_API mf_status mf_detokenize(const mf_model* model, const int32_t* tokens, size_t n_tokens,
                               int flags, char* text, size_t capacity, size_t* n);

typedef struct mf_message {
  const char* role;
  const char* content;
} mf_message;

typedef struct mf_chat_params {
  size_t struct_size;
  const mf_message* messages; /* either these */
  size_t n_messages;
  const char* messages_json;    /* or an array of messages in OpenAI's form */
  const char* tools_json;       /* an array, or NULL */
  const char* documents_json;   /* an array, or NULL */
  const char* variables_json;   /* an object: more for the template, {"enable_thinking": false} */
  int32_t no_generation_prompt; /* not 0: leave out the opening of the answer */
} mf_chat_params;

MF_API void mf_chat_params_init(mf_chat_params* params, size_t struct_size);
static inline mf_chat_params mf_chat_params_default(void) {
  mf_chat_params params;
  mf_chat_params_init(&params, sizeof(params));
  return params;
}

/* The prompt as the model's own template writes it: as text to look at, and as tokens to evaluate.
 * Evaluate the latter: in it, what users wrote can never become a control token. */
MF_API mf_status mf_apply_template(const mf_model* model, const mf_chat_params* chat, char* text,
                                   size_t capacity, size_t* n);
MF_API mf_status mf_tokenize_chat(const mf_model* model, const mf_chat_params* chat,
                                  int32_t* tokens, size_t capacity, size_t* n);

/* ---- Sampling -------------------------------------------------------------------------------- */

typedef struct mf_logit_bias {
  int32_t token;
  float bias; /* -infinity forbids the token */
} mf_logit_bias;

typedef struct mf_sampling_params {
  size_t struct_size;
  double temperature;        /* 0: the most likely token */
  double top_p;              /* 1: off */
  double min_p;              /* 0: off */
  double typical_p;          /* 1: off */
  double repetition_penalty; /* 1: off */
  double presence_penalty;   /* 0: off */
  double frequency_penalty;  /* 0: off */
  int32_t top_k;             /* 0: off */
  int32_t penalty_window;    /* the last so many tokens; -1: all */
  uint64_t seed;             /* equal seeds, equal answers */
  const mf_logit_bias* logit_bias;
  size_t n_logit_bias;
} mf_sampling_params;

/* Neutral: temperature 1, everything else off. */
MF_API void mf_sampling_params_init(mf_sampling_params* params, size_t struct_size);
static inline mf_sampling_params mf_sampling_params_default(void) {
  mf_sampling_params params;
  mf_sampling_params_init(&params, sizeof(params));
  return params;
}
/* What the checkpoint recommends; neutral where it says nothing. struct_size must be set. */
MF_API mf_status mf_model_sampling_params(const mf_model* model, mf_sampling_params* params);

/* Keeps what it has chosen, for the penalties and the random numbers. The caller owns it. */
MF_API mf_sampler* mf_sampler_new(mf_model* model, const mf_sampling_params* params);
MF_API void mf_sampler_free(mf_sampler* sampler);
/* Starts over with this prompt, which the repetition penalty counts. n may be 0. */
MF_API mf_status mf_sampler_reset(mf_sampler* sampler, const int32_t* prompt, size_t n);
/* The token chosen from mf_n_vocab() logits; -1 on error. */
MF_API int32_t mf_sampler_sample(mf_sampler* sampler, const float* logits);

/* ---- Answers --------------------------------------------------------------------------------- */

enum {
  MF_STOP_END = 0,    /* the model ended its answer */
  MF_STOP_STRING = 1, /* a stop string came */
  MF_STOP_MAX_TOKENS = 2,
  MF_STOP_CONTEXT = 3,   /* the context is full */
  MF_STOP_CANCELLED = 4, /* by mf_cancel() */
  MF_STOP_CALLBACK = 5   /* by the result of a callback */
};

/* Text as soon as it is certain: whole characters, never part of a stop string. Not NUL-terminated.
 * A result other than 0 ends the answer. */
typedef int (*mf_text_fn)(const char* text, size_t n_bytes, void* user);

typedef struct mf_generate_params {
  size_t struct_size;
  const mf_sampling_params* sampling; /* NULL: what the checkpoint recommends */
  int64_t max_tokens;                 /* 0: as many as the context holds */
  const char* const* stop;            /* texts that end the answer and are no part of it */
  size_t n_stop;
  int32_t ignore_end; /* not 0: go on past the model's own end */
  int32_t no_drafts;  /* not 0: one token at a time. Drafts change the time, never the answer */
  mf_text_fn on_text; /* may be NULL */
  void* user;
  int32_t* tokens; /* receives the answer's tokens, as many as fit; may be NULL */
  size_t tokens_capacity;
} mf_generate_params;

typedef struct mf_generate_result {
  size_t struct_size;  /* set by the caller */
  int32_t stop_reason; /* MF_STOP_* */
  size_t n_prompt;
  size_t n_tokens;   /* of the answer, without the end token */
  size_t n_drafted;  /* tokens drafted */
  size_t n_accepted; /* of these, right */
  double prefill_seconds;
  double decode_seconds;
} mf_generate_result;

MF_API void mf_generate_params_init(mf_generate_params* params, size_t struct_size);
static inline mf_generate_params mf_generate_params_default(void) {
  mf_generate_params params;
  mf_generate_params_init(&params, sizeof(params));
  return params;
}

/* Appends the prompt to the sequence and generates an answer, which becomes part of the sequence
 * too, all but its last token or end token (mf_memory_seq_tokens tells). Penalties count this
 * prompt and this answer, not what the sequence held before. `params` and `result` may be NULL.
 * Cancelled answers are a success with their stop_reason. */
MF_API mf_status mf_generate(mf_ctx* ctx, int seq_id, const int32_t* prompt, size_t n_prompt,
                             const mf_generate_params* params, mf_generate_result* result);

/* ---- Counters of a context, since its creation or the last reset ----------------------------- */

typedef struct mf_stats {
  size_t struct_size;      /* set by the caller */
  uint64_t tokens;         /* evaluated */
  uint64_t eval_ns;        /* spent in that */
  uint64_t wait_ns;        /* of it, standing still for reads of experts */
  uint64_t experts_hit;    /* experts asked for that were in memory or being prefetched */
  uint64_t experts_missed; /* that had to be read */
  uint64_t bytes_read;     /* for misses, prefetches and warming */
  uint64_t guessed;        /* experts prefetched */
  uint64_t guesses_used;   /* of these, used */
} mf_stats;

MF_API mf_status mf_get_stats(const mf_ctx* ctx, mf_stats* stats);
MF_API void mf_reset_stats(mf_ctx* ctx);
/* experts_hit and experts_missed of the above; either may be NULL. */
MF_API mf_status mf_prefetch_stats(const mf_ctx* ctx, uint64_t* hits, uint64_t* misses);
MF_API void mf_reset_prefetch_stats(mf_ctx* ctx);

#ifdef __cplusplus
}
#endif

#endif /* MOEFLUX_H */
