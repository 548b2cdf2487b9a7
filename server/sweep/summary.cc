#include "server/sweep/summary.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace assay::sweep {
namespace {

constexpr double kMsPerS = 1e3;

struct Samples {
  std::vector<double> ttft_ms, tpot_ms, itl_ms, e2el_ms, send_delay_ms;
};

void count_outcome(const RequestRecord& r, LevelSummary* s) {
  ++s->sent;
  ++s->kinds[r.kind];
  s->completed += r.outcome == Outcome::kCompleted;
  s->rejected += r.outcome == Outcome::kRejected;
  s->timed_out += r.outcome == Outcome::kTimedOut;
  s->failed += r.outcome == Outcome::kFailed;
  if (r.outcome != Outcome::kCompleted) s->kind_examples.emplace(r.kind, r.detail);
  s->resent += r.anomalies.resent;
  s->missing_usage += r.anomalies.missing_usage;
  s->missing_done += r.anomalies.missing_done;
  s->empty_output += r.anomalies.empty_output;
  s->token_mismatch += r.anomalies.token_mismatch;
  s->wrong_length += r.anomalies.wrong_length;
}

// Adds the latencies of a completed request; says whether it kept all limits.
bool take_latencies(const RequestRecord& r, const GoodputLimits& limits, Samples* samples) {
  const double e2el_ms = (r.last_choice_s - r.scheduled_s) * kMsPerS;
  samples->e2el_ms.push_back(e2el_ms);
  bool good = !limits.e2el_ms || e2el_ms <= *limits.e2el_ms;
  if (r.text_times_s.empty()) return good && !limits.ttft_ms && !limits.tpot_ms;
  const double ttft_ms = (r.text_times_s.front() - r.scheduled_s) * kMsPerS;
  samples->ttft_ms.push_back(ttft_ms);
  good = good && (!limits.ttft_ms || ttft_ms <= *limits.ttft_ms);
  if (r.output_tokens() > 1) {
    const double tpot_ms = (e2el_ms - ttft_ms) / static_cast<double>(r.output_tokens() - 1);
    samples->tpot_ms.push_back(tpot_ms);
    good = good && (!limits.tpot_ms || tpot_ms <= *limits.tpot_ms);
  }
  for (size_t i = 1; i < r.text_times_s.size(); ++i) {
    samples->itl_ms.push_back((r.text_times_s[i] - r.text_times_s[i - 1]) * kMsPerS);
  }
  return good;
}

void take_tokens(const RequestRecord& r, LevelSummary* s) {
  s->input_tokens += r.usage_prompt_tokens.value_or(0);
  s->output_tokens += r.output_tokens();
  s->cached_tokens += r.cached_tokens;
  s->chunks += static_cast<int64_t>(r.text_times_s.size());
  if (r.certificate) {
    CertificateTally& tally = s->certificate;
    ++tally.received;
    tally.certified += r.certificate->certified;
    tally.metered_cells += r.certificate->metered_cells;
    tally.certified_cells += r.certificate->certified_cells;
    tally.worst_tv = std::max(tally.worst_tv, r.certificate->worst_tv);
  }
}

void add_throughput(const std::vector<RequestRecord>& records, LevelSummary* s) {
  const auto in_window = [&](double t) { return t >= s->window.begin_s && t <= s->window.end_s; };
  double output = 0.0, input = 0.0;
  for (const RequestRecord& r : records) {
    if (r.outcome != Outcome::kCompleted || r.text_times_s.empty()) continue;
    const auto inside = std::count_if(r.text_times_s.begin(), r.text_times_s.end(), in_window);
    output += static_cast<double>(inside * r.output_tokens()) / static_cast<double>(r.text_times_s.size());
    if (in_window(r.text_times_s.front())) input += static_cast<double>(r.usage_prompt_tokens.value_or(0));
  }
  if (s->window.length_s() <= 0.0) return;
  s->output_tokens_per_s = output / s->window.length_s();
  s->input_tokens_per_s = input / s->window.length_s();
}

void add_rates(const std::vector<RequestRecord>& records, bool rate_mode, bool goodput, LevelSummary* s) {
  double first_start_s = records.front().scheduled_s, last_start_s = first_start_s, last_end_s = records.front().end_s;
  for (const RequestRecord& r : records) {
    first_start_s = std::min(first_start_s, r.scheduled_s);
    last_start_s = std::max(last_start_s, r.scheduled_s);
    last_end_s = std::max(last_end_s, r.end_s);
  }
  s->duration_s = last_end_s - first_start_s;
  if (rate_mode && last_start_s > first_start_s) {
    s->offered_requests_per_s = static_cast<double>(s->sent - 1) / (last_start_s - first_start_s);
  }
  if (s->duration_s <= 0.0) return;
  s->achieved_requests_per_s = static_cast<double>(s->completed) / s->duration_s;
  s->whole_output_tokens_per_s = static_cast<double>(s->output_tokens) / s->duration_s;
  if (goodput) s->goodput_requests_per_s = static_cast<double>(s->good) / s->duration_s;
}

}  // namespace

Window steady_window(const std::vector<RequestRecord>& records, bool rate_mode) {
  std::vector<std::pair<double, int>> changes;  // (time, +1 or -1); at one time ends come first
  double first_end_s = std::numeric_limits<double>::infinity(), last_end_s = 0.0, last_start_s = 0.0;
  for (const RequestRecord& r : records) {
    if (r.end_s <= r.sent_s) continue;
    changes.emplace_back(r.sent_s, +1);
    changes.emplace_back(r.end_s, -1);
    first_end_s = std::min(first_end_s, r.end_s);
    last_end_s = std::max(last_end_s, r.end_s);
    last_start_s = std::max(last_start_s, r.scheduled_s);
  }
  std::sort(changes.begin(), changes.end());
  Window window;
  int64_t in_flight = 0;
  for (const auto& [time_s, change] : changes) {
    if (change < 0 && in_flight == window.in_flight) window.end_s = time_s;
    in_flight += change;
    if (in_flight > window.in_flight) {
      window.in_flight = in_flight;
      window.begin_s = time_s;
    }
  }
  if (rate_mode && !changes.empty()) {
    const bool overlap = first_end_s < last_start_s;
    window.begin_s = overlap ? first_end_s : changes.front().first;
    window.end_s = overlap ? last_start_s : last_end_s;
  }
  return window;
}

LevelSummary summarize(const std::vector<RequestRecord>& records, const GoodputLimits& limits, bool rate_mode) {
  LevelSummary summary;
  if (records.empty()) return summary;
  Samples samples;
  for (const RequestRecord& r : records) {
    count_outcome(r, &summary);
    if (r.outcome != Outcome::kCompleted) continue;
    summary.good += take_latencies(r, limits, &samples);
    take_tokens(r, &summary);
  }
  for (const RequestRecord& r : records) samples.send_delay_ms.push_back((r.sent_s - r.scheduled_s) * kMsPerS);
  summary.window = steady_window(records, rate_mode);
  add_rates(records, rate_mode, limits.any(), &summary);
  add_throughput(records, &summary);
  summary.ttft_ms = describe(std::move(samples.ttft_ms));
  summary.tpot_ms = describe(std::move(samples.tpot_ms));
  summary.itl_ms = describe(std::move(samples.itl_ms));
  summary.e2el_ms = describe(std::move(samples.e2el_ms));
  summary.send_delay_ms = describe(std::move(samples.send_delay_ms));
  return summary;
}

}  // namespace assay::sweep
