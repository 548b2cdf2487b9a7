#include "kernels/cpu/gate.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/cpu/attention_log.h"
#include "kernels/cpu/audit.h"
#include "kernels/cpu/page_rows.h"
#include "kernels/cpu/pool_attention.h"
#include "kernels/cpu/pool_problem.h"

namespace assay {
namespace {

enum class Rung : uint8_t { kNone, kRefined, kPaged, kWholeHead };

// A row of one sequence and one KV head, with what its heads were given.
class RowRepair {
 public:
  RowRepair(const PoolProblem& problem, const kv::GateView& gate, Scratch& scratch, const PoolItem& item)
      : problem_(problem), gate_(gate), scratch_(scratch), item_(item), rows_(problem, item),
        log_(problem.group(), item.stored + item.first_own + 1) {}

  // Computes the row again over what is exact now.
  void attend(int thread) {
    const PoolItemOptions options{.page_rows = rows_.data(), .log = &log_.view()};
    const size_t floats = pool_item_floats(problem_, problem_.group());
    attend_pool_item(problem_, item_, options, scratch_.floats(thread, floats));
  }

  // Lowers the cells that are over their thresholds; counts in `tally` by the last rung taken for each. attend() first.
  void repair(int thread, kv::GateTally& tally) {
    std::vector<Rung> rungs(static_cast<size_t>(problem_.group()), Rung::kNone);
    std::vector<bool> was_over(rungs.size());
    for (int32_t pair = 0; pair < problem_.group(); ++pair) was_over[static_cast<size_t>(pair)] = is_over(pair);
    Rung rung = Rung::kRefined;
    const int32_t budget = kv::page_budget(rows_.count());
    for (int32_t read = 0;;) {
      refine();
      for (size_t pair = 0; pair < rungs.size(); ++pair) {
        if (was_over[pair] && rungs[pair] == Rung::kNone && !is_over(static_cast<int32_t>(pair))) rungs[pair] = rung;
      }
      const int32_t pair = first_over();
      if (pair < 0) break;
      const int32_t wanted = kv::next_round(read, budget);
      const int32_t got = wanted > 0 ? read_pages(pair, wanted, tally) : read_all(tally);
      pages_read_ += got;
      rung = wanted > 0 ? Rung::kPaged : Rung::kWholeHead;
      if (got == 0 && wanted <= 0) break;  // nothing is left that could be read
      read = got == 0 ? budget : read + got;
      if (got > 0) attend(thread);
    }
    count(rungs, tally);
  }

  // Before a repair: what the meter would have warned of, with the errors that it is about to lower. False: there is
  // nothing to compare with.
  bool audit_warnings(kv::AuditTallies& tallies, kv::GateTally& tally) {
    exact_.emplace(problem_, item_, tally);
    if (!exact_->is_known()) return false;
    for (int32_t pair = 0; pair < problem_.group(); ++pair) {
      before_.push_back(exact_->errors(pair, log_.view()));
      was_over_.push_back(is_over(pair));
      if (cell(pair).compressed_tokens == 0) continue;
      const float raw = verdict(pair).meter.raw;
      int bucket = 0;
      while (bucket < kv::kNumRawBuckets - 1 && !(raw <= kv::kRawEdges[bucket])) ++bucket;
      (before_.back().tv > kv::kHarmfulTv ? tallies.warnings.harmful : tallies.warnings.harmless)[bucket] += 1;
    }
    return true;
  }

  // What is served, against its bounds; `repaired`: and against what it was.
  void audit(bool repaired, kv::AuditTallies& tallies) {
    for (size_t pair = 0; pair < before_.size(); ++pair) {
      const CellErrors& before = before_[pair];
      const CellErrors errors = repaired ? exact_->errors(static_cast<int32_t>(pair), log_.view()) : before;
      audit_cell(problem_, item_, static_cast<int32_t>(pair), errors, tallies);
      if (!repaired || !was_over_[pair] || errors.largest_value == 0) continue;
      tallies.repairs.cells += 1;
      tallies.repairs.error_before += before.output / before.largest_value;
      tallies.repairs.error_after += errors.output / errors.largest_value;
    }
    if (repaired) tallies.repairs.rows_by_pages[page_bucket(pages_read_)] += 1;
  }

  int32_t first_over() const {
    for (int32_t pair = 0; pair < problem_.group(); ++pair) {
      if (is_over(pair)) return pair;
    }
    return -1;
  }

 private:
  kv::MeterCell& cell(int32_t pair) const {
    const int64_t row = problem_.cell(item_, pair);
    return problem_.meter.cells[row * problem_.meter.num_heads + problem_.head(item_, pair)];
  }
  kv::CellVerdict verdict(int32_t pair) const {
    const kv::MeterView& meter = problem_.meter;
    return kv::judge_cell(cell(pair), meter.thresholds[item_.sequence], meter.bound, meter.radius);
  }
  bool is_over(int32_t pair) const { return verdict(pair).label == kv::CellLabel::kRiskRanked; }

  // From the pool's first radius, or from the smaller one of two.
  float bound(int32_t pair, bool smaller) const {
    return page_bound(log_.view(), pair, problem_.cache.page_tokens, item_.stored, cell(pair).serial_terms, smaller);
  }

  // The finer bound of cells that are over, from the weights that attention has just given.
  void refine() {
    if (problem_.meter.bound != kv::BoundKind::kBest) return;
    for (int32_t pair = 0; pair < problem_.group(); ++pair) {
      if (!is_over(pair)) continue;
      const bool certain = problem_.meter.radius != kv::RadiusKind::kDither;
      cell(pair).page_bound = certain ? bound(pair, false) : kv::infinity();
      const bool two = problem_.meter.radius == kv::RadiusKind::kBoth;
      cell(pair).page_bound_conditional = certain && !two ? cell(pair).page_bound : bound(pair, two);
    }
  }

  std::vector<kv::GatePage> pages(int32_t pair) const {
    std::vector<kv::GatePage> pages =
        page_contributions(log_.view(), pair, problem_.cache.page_tokens, item_.stored,
                           problem_.meter.radius == kv::RadiusKind::kBoth);
    for (int32_t i = 0; i < rows_.count(); ++i) {
      pages[static_cast<size_t>(i)].exact = rows_.is_exact(i);
      pages[static_cast<size_t>(i)].refused = rows_.is_refused(i);
    }
    return pages;
  }

  // Reads up to `wanted` of the pages that hold the pair's bounds up. Returns how many.
  int32_t read_pages(int32_t pair, int32_t wanted, kv::GateTally& tally) {
    const kv::CellVerdict now = verdict(pair);
    const kv::MeterThresholds& thresholds = problem_.meter.thresholds[item_.sequence];
    const bool keys_pass = !kv::fires(now.meter, thresholds.tau) && now.meter.raw < 1.0f;
    std::vector<kv::GatePage> candidates = pages(pair);
    int32_t got = 0;
    while (got < wanted) {
      const int32_t page = kv::next_page(candidates.data(), rows_.count(), keys_pass);
      if (page < 0) break;
      const bool read = rows_.read_back(page, gate_, /*keep=*/true, tally);
      (read ? candidates[static_cast<size_t>(page)].exact : candidates[static_cast<size_t>(page)].refused) = true;
      got += read;
    }
    return got;
  }

  int32_t read_all(kv::GateTally& tally) {
    int32_t got = 0;
    for (int32_t page = 0; page < rows_.count(); ++page) {
      if (!rows_.is_exact(page) && !rows_.is_refused(page)) got += rows_.read_back(page, gate_, /*keep=*/true, tally);
    }
    return got;
  }

  // 0, 1, 2, 3-4, 5-8, ...
  static int page_bucket(int32_t pages) {
    int bucket = 0;
    while (bucket < kv::kNumPageBuckets - 1 && pages > (bucket == 0 ? 0 : 1 << (bucket - 1))) ++bucket;
    return bucket;
  }

  static void count(const std::vector<Rung>& rungs, kv::GateTally& tally) {
    for (const Rung rung : rungs) {
      tally.refined += rung == Rung::kRefined;
      tally.paged += rung == Rung::kPaged;
      tally.whole_head += rung == Rung::kWholeHead;
    }
  }

  const PoolProblem& problem_;
  const kv::GateView& gate_;
  Scratch& scratch_;
  const PoolItem item_;
  PageRows rows_;
  AttentionLog log_;
  int32_t pages_read_ = 0;
  std::optional<ExactAttention> exact_;  // of audited steps
  std::vector<CellErrors> before_;       // [pairs] as attention left them
  std::vector<bool> was_over_;           // [pairs]
};

bool is_exact(const PoolProblem& problem, const kv::GateView& gate, int32_t sequence) {
  return gate.is_exact(problem.layer, problem.meter.thresholds[sequence].policy);
}

// Rows that read no compressed row by order, decode and prefill alike.
void attend_exactly(ThreadPool& pool, Scratch& scratch, const PoolProblem& problem, const kv::GateView& gate) {
  std::vector<PoolItem> items;
  for (const PoolItem& item : make_pool_items(problem)) {
    if (item.stored > 0 && is_exact(problem, gate, item.sequence)) items.push_back(item);
  }
  std::vector<kv::GateTally> tallies(items.size());
  pool.parallel_for(static_cast<int64_t>(items.size()), [&](int64_t i, int thread) {
    const PoolItem& item = items[static_cast<size_t>(i)];
    PageRows rows(problem, item);
    for (int32_t page = 0; page < rows.count(); ++page) {
      if (!rows.is_exact(page)) rows.read_back(page, gate, /*keep=*/false, tallies[static_cast<size_t>(i)]);
    }
    const PoolItemOptions options{.page_rows = rows.data(), .log = nullptr};
    const size_t floats = pool_item_floats(problem, item.rows * problem.group());
    attend_pool_item(problem, item, options, scratch.floats(thread, floats));
    tallies[static_cast<size_t>(i)].whole_layer =
        static_cast<uint64_t>(rows.all_exact() ? item.rows * problem.group() : 0);
  });
  for (size_t i = 0; i < items.size(); ++i) {
    kv::add(problem.meter.sequences[items[i].sequence].gate, tallies[i]);
  }
}

// Repaired pages that this step reads stay; each counts as a hit.
void touch_repairs(const PoolProblem& problem, const kv::GateView& gate) {
  if (gate.repair.num_slots == 0) return;
  const PagedKvView& cache = problem.cache;
  for (int32_t s = 0; s < problem.batch.num_sequences; ++s) {
    const int32_t stored = problem.batch.positions[problem.batch.first_row[s]];
    const int32_t* pages = problem.batch.pages_of(s);
    for (int32_t h = 0; h < cache.num_kv_heads; ++h) {
      for (int32_t i = 0; i * cache.page_tokens < stored; ++i) {
        const int32_t slot = cache.exact.slots[cache.exact_key(problem.layer, h, pages[i])];
        if (slot < 0 || !gate.repair.holds(slot)) continue;
        gate.repair.touch(slot);
        problem.meter.sequences[s].gate.repair_hits += 1;
      }
    }
  }
}

// Decode rows, one KV head each, that may be repaired or are to be audited.
std::vector<PoolItem> decode_items(const PoolProblem& problem, const kv::GateView& gate) {
  std::vector<PoolItem> items;
  for (int32_t i = 0; i < problem.meter.num_metered; ++i) {
    const kv::MeteredRow& row = problem.meter.rows[i];
    if (row.phase != kv::Phase::kDecode || row.position == 0 || is_exact(problem, gate, row.sequence)) continue;
    if (gate.audit == nullptr && problem.meter.thresholds[row.sequence].policy != kv::GatePolicy::kRepair) continue;
    const int32_t first = problem.batch.first_row[row.sequence], stored = problem.batch.positions[first];
    if (stored == 0) continue;  // everything is the slice's own
    for (int32_t h = 0; h < problem.shape.num_kv_heads; ++h) {
      items.push_back({row.sequence, row.row, 1, h, stored, row.row - first});
    }
  }
  return items;
}

bool any_over(const PoolProblem& problem, const PoolItem& item) {
  const kv::MeterView& meter = problem.meter;
  for (int32_t pair = 0; pair < problem.group(); ++pair) {
    const int64_t at = int64_t{problem.cell(item, pair)} * meter.num_heads + problem.head(item, pair);
    const kv::CellVerdict verdict =
        kv::judge_cell(meter.cells[at], meter.thresholds[item.sequence], meter.bound, meter.radius);
    if (verdict.label == kv::CellLabel::kRiskRanked) return true;
  }
  return false;
}

}  // namespace

void cpu_gate(ThreadPool& pool, Scratch& scratch, int32_t layer, const BatchView& batch, const AttentionShape& shape,
              ConstTensor qkv, const PagedKvView& cache, const kv::MeterView& meter, const kv::GateView& gate,
              Tensor out) {
    const PoolProblem problem = make_pool_problem(layer, batch, shape, qkv, cache, meter, out);
  touch_repairs(problem, gate);
  attend_exactly(pool, scratch, problem, gate);
  for (const PoolItem& item : decode_items(problem, gate)) {
    const bool may_repair = meter.thresholds[item.sequence].policy == kv::GatePolicy::kRepair;
    if (gate.audit == nullptr && !(may_repair && any_over(problem, item))) continue;
    RowRepair row(problem, gate, scratch, item);
    // Pages that a row before this one has repaired are exact here too, and that may raise a bound: judged afterwards.
    row.attend(/*thread=*/0);
    kv::GateTally& tally = meter.sequences[item.sequence].gate;
    const bool repairs = may_repair && row.first_over() >= 0;
    const bool audits = gate.audit != nullptr && row.audit_warnings(*gate.audit, tally);
    if (repairs) row.repair(/*thread=*/0, tally);
    if (audits) row.audit(repairs, *gate.audit);
  }
}

}  // namespace assay
