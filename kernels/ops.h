// Every operation the engine can ask of a device. THE seam: twins in cpu/ (and later cuda/) behind this interface.
//
// Memory: all pointers are device memory unless marked host. Activations have the dtype `activation_dtype()` (float32
// on the CPU); weights keep the dtype they are stored in, and a bias or a norm weight may differ from its matrix.
// Order: operations of one Ops run as issued (see device.h). Threads: one caller at a time.
// Determinism: a row of a result depends on the row's own inputs only: its arithmetic order is fixed, whatever the
// number of rows, the split of a sequence into chunks, or the number of threads. Errors: infallible by contract; broken
// preconditions abort. A device that fails says so in Device::synchronize.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/tensor.h"
#include "kernels/kv/fold_cell.h"
#include "kernels/kv/gate.h"
#include "kernels/kv/paged_kv_view.h"

namespace assay {

// The tokens of one step, flattened: sequence s owns rows [first_row[s], first_row[s + 1]) at consecutive positions.
struct BatchView {
  int32_t num_tokens = 0;
  int32_t num_sequences = 0;
  const int32_t* token_ids = nullptr;   // [num_tokens]
  const int32_t* positions = nullptr;   // [num_tokens]
  const int32_t* sequences = nullptr;   // [num_tokens] row -> sequence
  const int32_t* first_row = nullptr;   // [num_sequences + 1]
  const int32_t* page_table = nullptr;  // [num_sequences, page_table_stride] page ids from position 0
  int32_t page_table_stride = 0;
  int32_t max_context = 0;     // largest position + 1
  int32_t num_decodes = 0;     // so many sequences at the start own one row each; devices that care need it exact
  int32_t max_slice_rows = 0;  // of the longest slice; likewise

  const int32_t* pages_of(int32_t sequence) const {
    return page_table + static_cast<int64_t>(sequence) * page_table_stride;
  }
};

// One matrix of a projection. Several parts (q, k, v or gate, up) write side by side into one output.
struct LinearPart {
  ConstTensor weight;  // [out, in]
  ConstTensor bias;    // [1, out] or absent
};

// Inputs of the rotary embedding that hold for a whole step.
struct RopeView {
  const float* inv_freq = nullptr;  // host [rotary_pairs]
  int32_t rotary_pairs = 0;         // head_dim / 2
  float scale = 1.0f;               // of cos and sin (the attention factor of YaRN)
};

struct AttentionShape {
  int32_t num_heads = 0;  // query heads; head h reads KV head h / (num_heads / num_kv_heads)
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t qkv_columns() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
};

// How to choose the next token from one row of logits. Host memory; valid during the call.
struct SamplingRow {
  float temperature = 1.0f;  // 0 = the largest logit, lowest id first
  float top_p = 1.0f;
  int32_t top_k = 0;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::span<const std::pair<int32_t, float>> logit_bias;
  std::span<const int32_t> prompt;     // for the repetition penalty
  std::span<const int32_t> output;     // for all penalties
  std::span<const int32_t> forbidden;  // get probability 0
  uint64_t seed = 0;
  uint64_t draw = 0;  // the random number is a function of (seed, draw) alone
};

// -1: the row has a logit that is not finite, or every token is forbidden.
constexpr int32_t kNoToken = -1;

// Log softmax of raw logits at one token, and the most probable tokens.
struct LogprobsRow {
  int32_t token = 0;    // in
  int32_t num_top = 0;  // in: how many of the most probable to list; -1 = leave this row alone
  bool finite = false;  // out: false = a logit is not finite, then nothing below is valid
  float logprob = 0.0f;
  int32_t rank = 0;  // 1 = most probable; ties by lowest id
  std::vector<std::pair<int32_t, float>> top;
};

// A page that is filled again from the backing store.
struct PageToRestore {
  int32_t page = 0;            // covered, all its rows written
  int32_t first_position = 0;  // of its first token in the sequence
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual DType activation_dtype() const = 0;

  // Empty, or a sentence for people about what makes these operations slower than they could be.
  virtual std::string warning() const { return ""; }

  // Empty where attention serves such heads over such a cache, otherwise a sentence that names what it cannot do.
  virtual std::string unsupported(const AttentionShape& shape, const PagedKvView& cache) const {
    static_cast<void>(shape), static_cast<void>(cache);
    return "";
  }

  // out[i] = table[ids[i]]. ids [out.rows] in [0, table.rows).
  virtual void embed(ConstTensor table, const int32_t* ids, Tensor out) = 0;

  // out = x / sqrt(mean(x^2) + eps) * weight, per row. weight [1, cols]. out may be x.
  virtual void rms_norm(ConstTensor x, ConstTensor weight, float eps, Tensor out) = 0;

  // out = [x parts[0].weight^T + bias | x parts[1].weight^T + bias | ...], plus the old out when `accumulate`.
  // x [m, in], out [m, sum of the parts' rows].
  virtual void linear(ConstTensor x, std::span<const LinearPart> parts, bool accumulate, Tensor out) = 0;

  // Angles of each row: cos_sin [num_tokens, 2 x rotary_pairs] = cos then sin of position x inv_freq, times scale.
  virtual void rope_angles(const BatchView& batch, const RopeView& rope, float* cos_sin) = 0;

  // In place on qkv [num_tokens, qkv_columns]: optional RMS norm of each q and k head (weights [1, head_dim], absent =
  // none), then rotation of channel pairs (i, i + head_dim / 2).
  virtual void qk_norm_rope(const AttentionShape& shape, ConstTensor q_norm, ConstTensor k_norm, float eps,
                            const float* cos_sin, Tensor qkv) = 0;

  // Stores k and v of qkv into the cache at the rows' positions. float16 rows saturate at +-65504.
  virtual void kv_write(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                        const PagedKvView& cache) = 0;

  // Causal attention of q in qkv over the cache. Exact pool: after kv_write, every row is read from the cache.
  // Compressed pools: before kv_write; a slice's own rows are read from qkv, earlier positions as stored, and each
  // metered row leaves one cell per head in `meter` (which the exact pool ignores). out [num_tokens, heads x dim].
  virtual void attention(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                         const PagedKvView& cache, const kv::MeterView& meter, Tensor out) = 0;

  // Lowers the cells that attention left for `layer` where they are over their thresholds, and recomputes their outputs;
  // kernels/kv/gate.h. After attention of the same arguments, before kv_write. Devices without a gate do nothing.
  virtual bool has_gate() const { return false; }
  virtual void gate(int32_t layer, const BatchView& batch, const AttentionShape& shape, ConstTensor qkv,
                    const PagedKvView& cache, const kv::MeterView& meter, const kv::GateView& gate, Tensor out) {
    static_cast<void>(layer), static_cast<void>(batch), static_cast<void>(shape), static_cast<void>(qkv);
    static_cast<void>(cache), static_cast<void>(meter), static_cast<void>(gate), static_cast<void>(out);
  }

  // Encodes whole pages again, all layers and KV heads, from their backing rows: the records that kv_write made of the same
  // rows, bit for bit. Returns how many rows did not read back as written; their pages are not valid then. Devices
  // without a gate have no backing store.
  virtual int64_t kv_restore(std::span<const PageToRestore> pages, const PagedKvView& cache) {
    return static_cast<int64_t>(pages.size()) * cache.page_tokens;
  }

  // Labels and counts the cells that attention left for `layer`.
  virtual void fold_meters(int32_t layer, const kv::MeterView& meter) = 0;

  // out = silu(gate) * up; gate_up [m, 2 n] (gate first), out [m, n].
  virtual void silu_mul(ConstTensor gate_up, Tensor out) = 0;

  // out = silu(x gate^T + bias) * (x up^T + bias), parts = {gate, up} of [n, in], out [m, n]. `gate_up` [m, 2 n] may be
  // used in between.
  virtual void gated_linear(ConstTensor x, std::span<const LinearPart> parts, Tensor gate_up, Tensor out) {
    linear(x, parts, /*accumulate=*/false, gate_up);
    silu_mul(gate_up, out);
  }

  // out[i] = x[rows[i]].
  virtual void gather_rows(ConstTensor x, const int32_t* rows, Tensor out) = 0;

  // tokens[i] (host) = the choice of row i of logits [n, vocabulary], or kNoToken.
  virtual void sample(ConstTensor logits, std::span<const SamplingRow> rows, int32_t* tokens) = 0;

  // Fills rows (host), one per row of logits [n, vocabulary].
  virtual void logprobs(ConstTensor logits, std::span<LogprobsRow> rows) = 0;

  // Calls `issue`, or repeats what it issued when it was called with this key before: an operation in it must get the
  // same pointers, shapes and numbers whenever the key is the same; what the memory holds may differ. `issue` calls
  // operations that answer in device memory, nothing else.
  virtual void run_repeatable(std::span<const uint64_t> key, const std::function<void()>& issue) {
    static_cast<void>(key);
    issue();
  }
};

}  // namespace assay
