#include "server/eval/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kDecode = static_cast<size_t>(MeterPhase::kDecode),
                 kPrefill = static_cast<size_t>(MeterPhase::kPrefill);

Share covered(const CertificateCells& cells) {
  return {cells.certified + cells.conditional + cells.exact, cells.metered};
}

// Cells whose bound is at most each edge, whatever the server's tau.
Json at_most(const MeterSnapshot& meters, size_t phase) {
  Json shares = Json::object();
  int64_t total = 0, below = 0;
  for (const HeadSnapshot& head : meters.heads) total += head.cells[phase].metered;
  for (size_t i = 0; total > 0 && i < meters.bucket_edges.size() && i < meters.tv[phase].counts.size(); ++i) {
    below += meters.tv[phase].counts[i];
    shares[fmt::format("{:g}", meters.bucket_edges[i])] = below;
  }
  return shares;
}

Json share_json(const Share& share) {
  if (share.total == 0) return nullptr;
  return {{"hits", share.hits},
          {"total", share.total},
          {"share", share.value()},
          {"low", share.low()},
          {"high", share.high()}};
}

Json cells_json(const CertificateCells& cells) {
  return {{"metered", cells.metered},
          {"certified", cells.certified},
          {"conditional", cells.conditional},
          {"risk_ranked", cells.risk_ranked},
          {"saturated", cells.saturated},
          {"overflow", cells.overflow},
          {"exact", cells.exact},
          {"covered", share_json(covered(cells))}};
}

Json audit_json(const AuditCounts& counts) {
  return {{"cells", counts.cells}, {"violations", counts.violations}, {"tightness", counts.tightness}};
}

Json gate_json(const GateStats& gate) {
  return {{"refined_cells", gate.refined_cells},
          {"paged_cells", gate.paged_cells},
          {"whole_head_cells", gate.whole_head_cells},
          {"pages_in", gate.pages_in},
          {"bytes_in", gate.bytes_in},
          {"repair_cache_hits", gate.repair_cache_hits},
          {"audit_deterministic", audit_json(gate.audit_deterministic)},
          {"audit_conditional", audit_json(gate.audit_conditional)},
          {"audit_warnings", {{"harmless", gate.audit_warnings.harmless}, {"harmful", gate.audit_warnings.harmful}}},
          {"audit_repairs",
           {{"rows_by_pages", gate.audit_repairs.rows_by_pages},
            {"cells", gate.audit_repairs.cells},
            {"error_before", gate.audit_repairs.error_before},
            {"error_after", gate.audit_repairs.error_after}}}};
}

Json answer_json(const NeedleAnswer& answer) {
  return {{"context", answer.context},
          {"prompt_tokens", answer.prompt_tokens},
          {"right", answer.right},
          {"same", answer.same},
          {"gate",
           {{"refined", answer.gate.refined},
            {"paged", answer.gate.paged},
            {"whole_head", answer.gate.whole_head},
            {"pages_in", answer.gate.pages_in},
            {"bytes_in", answer.gate.bytes_in}}}};
}

Json pool_json(const PoolMeasure& pool) {
  Json json = {{"pool", pool.spec},
               {"bytes_per_token_head", pool.bytes_per_token_head},
               {"tokens", pool.tokens},
               {"seconds", pool.seconds}};
  if (!pool.has_meter) return json;
  json["tau"] = pool.tau;
  json["decode"] = cells_json(pool.decode);
  json["decode"]["worst_raw"] = std::isfinite(pool.worst) ? Json(pool.worst) : Json("inf");
  json["decode"]["bound_at_most"] = at_most(pool.meters, kDecode);
  json["gate"] = gate_json(pool.gate);
  json["prefill"] = cells_json(pool.prefill);
  json["prefill"]["bound_at_most"] = at_most(pool.meters, kPrefill);
  return json;
}

std::string share_text(const Share& share) {
  return share.total == 0 ? "-" : fmt::format("{:.4f} [{:.4f}, {:.4f}]", share.value(), share.low(), share.high());
}

std::string answers_text(const Share& share) {
  return share.total == 0 ? "-"
                          : fmt::format("{}/{} {:.3f} [{:.3f}, {:.3f}]", share.hits, share.total, share.value(),
                                        share.low(), share.high());
}

size_t widest(const std::vector<std::string>& texts) {
  size_t width = 4;
  for (const std::string& text : texts) width = std::max(width, text.size());
  return width;
}

}  // namespace

std::string needle_table(const std::vector<NeedleResult>& results) {
  std::vector<std::string> specs;
  for (const NeedleResult& result : results) specs.push_back(result.pool.spec);
  const size_t width = widest(specs);
  std::string text = fmt::format("{:<{}} {:>6} {:>8} {:>27} {:>9} {:>24} {:>9}\n", "pool", width, "bytes", "context",
                                 "right answers, 95 %", "same", "covered cells, 95 %", "tokens/s");
  for (const NeedleResult& result : results) {
    for (const NeedleContext& context : result.contexts) {
      text +=
          fmt::format("{:<{}} {:>6} {:>8} {:>27} {:>9} {:>24}\n", result.pool.spec, width,
                      result.pool.bytes_per_token_head, context.context, answers_text(context.right),
                      fmt::format("{}/{}", context.same.hits, context.same.total), share_text(covered(context.decode)));
    }
    text += fmt::format("{:<{}} {:>6} {:>8} {:>27} {:>9} {:>24} {:>9.0f}\n", result.pool.spec, width,
                        result.pool.bytes_per_token_head, "all", "", "", share_text(covered(result.pool.decode)),
                        static_cast<double>(result.pool.tokens) / result.pool.seconds);
  }
  return text +
         "same: answers equal to the first pool's, token by token. covered: decode cells that are certified, "
         "conditional or exact.\n";
}

std::string needle_json(const std::vector<NeedleResult>& results) {
  Json json = Json::array();
  for (const NeedleResult& result : results) {
    Json entry = pool_json(result.pool);
    for (const NeedleContext& context : result.contexts) {
      entry["contexts"].push_back({{"context", context.context},
                                   {"right", share_json(context.right)},
                                   {"same", share_json(context.same)},
                                   {"decode", cells_json(context.decode)}});
    }
    for (const NeedleAnswer& answer : result.answers) entry["answers"].push_back(answer_json(answer));
    json.push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

std::string text_table(const std::vector<TextResult>& results) {
  std::vector<std::string> specs;
  for (const TextResult& result : results) specs.push_back(result.pool.spec);
  const size_t width = widest(specs);
  std::string text = fmt::format("{:<{}} {:>6} {:>9} {:>11} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>24}\n", "pool",
                                 width, "bytes", "positions", "perplexity", "KL mean", "KL median", "KL p99", "KL max",
                                 "top-1", "top-5", "covered cells, 95 %");
  for (const TextResult& result : results) {
    text += fmt::format("{:<{}} {:>6} {:>9} {:>11.5f}", result.pool.spec, width, result.pool.bytes_per_token_head,
                        result.positions, std::exp(result.nll));
    if (result.compared > 0) {
      text += fmt::format(" {:>10.3e} {:>10.3e} {:>10.3e} {:>10.3e} {:>8.4f} {:>8.4f}", result.kl_mean,
                          result.kl_median, result.kl_p99, result.kl_max, result.top1.value(), result.top5.value());
    } else {
      text += fmt::format(" {:>10} {:>10} {:>10} {:>10} {:>8} {:>8}", "-", "-", "-", "-", "-", "-");
    }
    text += fmt::format(" {:>24}\n", share_text(covered(result.pool.prefill)));
  }
  return text;
}

std::string text_json(const std::vector<TextResult>& results) {
  Json json = Json::array();
  for (const TextResult& result : results) {
    Json entry = pool_json(result.pool);
    entry["positions"] = result.positions;
    entry["nll"] = result.nll;
    entry["perplexity"] = std::exp(result.nll);
    if (result.compared > 0) {
      entry["divergence"] = {{"positions", result.compared},   {"kl_mean", result.kl_mean},
                             {"kl_median", result.kl_median},  {"kl_p99", result.kl_p99},
                             {"kl_max", result.kl_max},        {"top1", share_json(result.top1)},
                             {"top5", share_json(result.top5)}};
    }
    json.push_back(std::move(entry));
  }
  return json.dump(2) + "\n";
}

}  // namespace assay
