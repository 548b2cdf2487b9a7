// Stored rows against the exact ones: what a witness, rho and a scale promise, for hostile rows and for queries along
// the residual, the worst direction there is.
#include <cmath>

#include "engine/verify/rows.h"
#include "engine/verify/tally.h"
#include "kernels/kv/codec.h"
#include "kernels/kv/observed_codecs.h"

namespace assay {
namespace {

using Row = std::vector<float>;

std::vector<double> residual_of(const Row& decoded, const std::vector<double>& exact) {
  std::vector<double> residual(exact.size());
  for (size_t c = 0; c < exact.size(); ++c) residual[c] = static_cast<double>(decoded[c]) - exact[c];
  return residual;
}

// ---- The certified pool

struct CertifiedHead {
  int d;
  Row signs, lambda, xi;
  kv::RowTransform transform() const { return {.head_dim = d, .signs = signs.data(), .lambda = lambda.data()}; }
};

CertifiedHead make_head(TrialRandom& random, int d, bool dithered) {
  CertifiedHead head{d, Row(static_cast<size_t>(d)), hostile_lambda(random, d), Row(static_cast<size_t>(d), 0.0f)};
  kv::rotation_signs(d, head.signs.data());
  if (dithered) {
    kv::dither_row(random.below(1u << 30), 3, 1, static_cast<uint32_t>(random.below(64)), d, head.xi.data());
  }
  return head;
}

struct StoredRow {
  std::vector<int8_t> levels;
  kv::CertifiedSide side;
  Row decoded;
};

StoredRow store_key(const CertifiedHead& head, const Row& key) {
  Row x(key.size());
  kv::transform_key(head.transform(), key.data(), x.data());
  StoredRow stored{std::vector<int8_t>(key.size()), {}, Row(key.size())};
  stored.side = kv::encode_certified_key(x.data(), head.d, head.xi.data(), kv::transform_margins(head.transform()),
                                         stored.levels.data());
  kv::decode_certified(stored.levels.data(), stored.side, head.d, head.xi.data(), stored.decoded.data());
  return stored;
}

// The model's query whose transform lies along the residual.
Row query_along_residual(const CertifiedHead& head, const Row& key, const StoredRow& stored) {
  std::vector<double> exact(key.size());
  for (size_t c = 0; c < key.size(); ++c) exact[c] = static_cast<double>(key[c]) / head.lambda[c];
  const std::vector<double> residual =
      rotated_back(head.signs, residual_of(stored.decoded, rotated(head.signs, exact)));
  const double size = static_cast<double>(norm(residual));
  Row query(key.size());
  for (size_t c = 0; c < key.size(); ++c) {
    query[c] = static_cast<float>(residual[c] / (size > 0 ? size : 1) / head.lambda[c]);
  }
  return query;
}

// The logit in float over eight lanes against the exact one of the model's query and key.
void check_key(const CertifiedHead& head, const Row& key, const StoredRow& stored, const Row& query,
               VerifyCheck& check) {
  const float softmax_scale = 1.0f / std::sqrt(static_cast<float>(head.d));
  Row q(query.size());
  kv::transform_query(head.transform(), query.data(), q.data());
  float lanes[8] = {};
  for (size_t c = 0; c < q.size(); ++c) lanes[c % 8] += q[c] * (static_cast<float>(stored.levels[c]) - head.xi[c]);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  const float logit = sum * kv::half_to_float(stored.side.scale) * softmax_scale;
  const float radius =
      kv::witness_factor(softmax_scale, kv::norm_up(q.data(), head.d), kv::transform_margins(head.transform())) *
      kv::half_to_float(stored.side.bound);
  count(check, std::fabs(logit - static_cast<long double>(softmax_scale) * dot(query, key)), radius);
}

void check_value(const CertifiedHead& head, const Row& value, VerifyCheck& check) {
  Row x(value.size()), decoded(value.size());
  std::vector<int8_t> levels(value.size());
  kv::transform_value(head.transform(), value.data(), x.data());
  const kv::CertifiedSide side =
      kv::encode_certified_value(x.data(), head.d, kv::transform_margins(head.transform()), levels.data());
  kv::decode_certified(levels.data(), side, head.d, nullptr, decoded.data());
  const std::vector<double> exact(value.begin(), value.end());
  count(check, norm(residual_of(decoded, rotated(head.signs, exact))), kv::half_to_float(side.bound));
}

// Scales per group: a channel errs by half a step at most, a value row by the radius of its scales.
void check_groups(const Row& row, int d, const float* xi, VerifyCheck& steps, VerifyCheck& radius) {
  std::vector<int8_t> levels(row.size());
  std::vector<uint16_t> scales(static_cast<size_t>(kv::group_count(d)));
  kv::encode_groups(row.data(), d, xi, levels.data(), scales.data());
  std::vector<double> residual(row.size());
  for (size_t c = 0; c < row.size(); ++c) {
    const uint16_t bits = scales[c / static_cast<size_t>(kv::group_channels(d))];
    if (bits == kv::kHalfInfinity) return;  // exact-only: no bound is claimed
    const double scale = kv::half_to_float(bits);
    residual[c] = scale * (levels[c] - (xi != nullptr ? static_cast<double>(xi[c]) : 0.0)) - row[c];
    count(steps, std::fabs(residual[c]), scale * (0.5 + 0x1p-17));
  }
  if (xi == nullptr) {
    count(radius, norm(residual), kv::group_value_radius(scales.data(), kv::group_count(d), kv::group_channels(d)));
  }
}

// ---- Observed schemes

struct Scheme {
  const char* name;
  int tokens;
  int64_t (*bytes)(const kv::TileContext&);
  void (*encode)(const kv::TileContext&, const float*, uint8_t*);
  void (*decode)(const kv::TileContext&, const uint8_t*, float*);
};

constexpr Scheme kSchemes[] = {
    {"rtn-int8", kv::kTokenTile, kv::rtn_int8_bytes, kv::rtn_int8_encode, kv::rtn_int8_decode},
    {"rtn-int8-tensor", kv::kTokenTile, kv::rtn_int8_tensor_bytes, kv::rtn_int8_tensor_encode,
     kv::rtn_int8_tensor_decode},
    {"fp8-e4m3", kv::kTokenTile, kv::fp8_e4m3_bytes, kv::fp8_e4m3_encode, kv::fp8_e4m3_decode},
    {"rtn-int4", kv::kTokenTile, kv::rtn_int4_bytes, kv::rtn_int4_encode, kv::rtn_int4_decode},
    {"kivi-2", kv::kChannelTile, kv::kivi_2_bytes, kv::kivi_2_encode, kv::kivi_2_decode},
    {"kvquant-4", kv::kChannelTile, kv::kvquant_4_bytes, kv::kvquant_4_encode, kv::kvquant_4_decode},
    {"stochastic-int8", kv::kTokenTile, kv::stochastic_int8_bytes, kv::stochastic_int8_encode,
     kv::stochastic_int8_decode},
    {"identity", kv::kTokenTile, kv::identity_bytes, kv::identity_encode, kv::identity_decode},
};

// Worst for every band at once.
Row query_along_bands(const Row& exact, const Row& decoded, int d) {
  double squares[16] = {};
  for (int c = 0; c < d; ++c) {
    const double r = static_cast<double>(decoded[c]) - exact[c];
    squares[kv::band_of_channel(c, d)] += r * r;
  }
  Row query(exact.size());
  for (int c = 0; c < d; ++c) {
    const double size = std::sqrt(squares[kv::band_of_channel(c, d)]);
    query[c] = size > 0 ? static_cast<float>((static_cast<double>(decoded[c]) - exact[c]) / size) : 0.0f;
  }
  return query;
}

void check_observed_row(const Row& exact, const Row& decoded, const Row& query, int d, VerifyCheck& check) {
  const float softmax_scale = 1.0f / std::sqrt(static_cast<float>(d));
  const kv::ArithmeticMargins margins = kv::plain_margins(d);
  uint16_t witness[16];
  float factors[16], logit = 0;
  kv::band_witness(exact.data(), decoded.data(), d, margins, witness);
  kv::band_factors(softmax_scale, query.data(), d, margins, factors);
  for (size_t c = 0; c < query.size(); ++c) logit += query[c] * decoded[c];
  const long double truth = static_cast<long double>(softmax_scale) * dot(query, exact);
  count(check, std::fabs(logit * softmax_scale - truth), kv::band_radius(factors, witness, d));
  count(check, norm(residual_of(decoded, {exact.begin(), exact.end()})),
        kv::half_to_float(kv::value_row_bound(exact.data(), decoded.data(), d)));
}

VerifyCheck check_scheme(const Scheme& scheme, TrialRandom& random, int64_t tiles) {
  VerifyCheck check{std::string("observed.") + scheme.name, "logit error <= band radius and |v^ - v| <= rho"};
  for (int64_t trial = 0; trial < tiles; ++trial) {
    const int d = kVerifiedHeadDims[trial % 3];
    const kv::TileContext context{.head_dim = d,
                                  .tokens = scheme.tokens,
                                  .side = trial % 2 == 0 ? kv::KvSide::kKey : kv::KvSide::kValue,
                                  .static_scale = 0.05f,
                                  .seed = 7};
    Row rows;
    for (int t = 0; t < scheme.tokens; ++t) {
      const Row row = hostile_row(random, d);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    std::vector<uint8_t> bytes(static_cast<size_t>(scheme.bytes(context)));
    Row decoded(rows.size());
    scheme.encode(context, rows.data(), bytes.data());
    scheme.decode(context, bytes.data(), decoded.data());
    for (int t = 0; t < scheme.tokens; ++t) {
      const Row exact(rows.begin() + t * d, rows.begin() + (t + 1) * d);
      const Row served(decoded.begin() + t * d, decoded.begin() + (t + 1) * d);
      check_observed_row(exact, served, query_along_bands(exact, served, d), d, check);
      check_observed_row(exact, served, hostile_row(random, d), d, check);
    }
  }
  return check;
}

}  // namespace

std::vector<VerifyCheck> verify_codecs(const VerifyOptions& options) {
  VerifyCheck key{"certified.witness", "logit error, the kernel's arithmetic included, <= |q'| w / sqrt(d)"},
      value{"certified.rho", "|v^' - R v| <= rho"},
      steps{"witcert.step", "a channel errs by half a step at most: nothing clips"},
      radius{"witcert.rho", "|v^ - v| <= sqrt(sum of 32 s^2) / 2"};
  TrialRandom random(options.seed + 2);
  const int64_t trials = std::max<int64_t>(options.trials / 100, 1);
  for (int64_t trial = 0; trial < trials; ++trial) {
    const int d = kVerifiedHeadDims[trial % 3];
    const CertifiedHead head = make_head(random, d, trial % 2 == 1);
    const Row row = hostile_row(random, d);
    const StoredRow stored = store_key(head, row);
    for (const Row& query : {query_along_residual(head, row, stored), hostile_row(random, d), row}) {
      check_key(head, row, stored, query, key);
    }
    check_value(head, row, value);
    check_groups(row, d, nullptr, steps, radius);
    check_groups(row, d, head.xi.data(), steps, radius);
  }
  std::vector<VerifyCheck> checks{key, value, steps, radius};
  for (const Scheme& scheme : kSchemes)
    checks.push_back(check_scheme(scheme, random, std::max<int64_t>(trials / 50, 3)));
  return checks;
}

}  // namespace assay
