// What `assay eval` measures of one pool; plain values, made by needle.cc and teacher_forced.cc, printed by report.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/api/certificate.h"
#include "engine/api/gate.h"
#include "engine/api/meters.h"
#include "server/eval/statistics.h"

namespace assay {

// How far a measurement is: `what` it does, `done` of `total`.
using Progress = std::function<void(const std::string& what, int64_t done, int64_t total)>;

struct PoolMeasure {
  std::string spec;  // as asked for
  int32_t bytes_per_token_head = 0;
  double seconds = 0;  // of all requests
  int64_t tokens = 0;  // prompt and generated, of all requests
  bool has_meter = false;
  CertificateCells decode, prefill;  // labels at the pool's tau, all requests
  double tau = 0, worst = 0;         // largest raw decode value
  MeterSnapshot meters;
  GateStats gate;
};

struct NeedleContext {
  int64_t context = 0;  // tokens of a prompt, about
  Share right;
  Share same;  // answers equal to the first pool's, token by token
  CertificateCells decode;
};

struct NeedleAnswer {
  int64_t context = 0;
  bool right = false, same = false;
  int64_t prompt_tokens = 0;
  CertificateGate gate;
};

struct NeedleResult {
  PoolMeasure pool;
  std::vector<NeedleAnswer> answers;  // as asked
  std::vector<NeedleContext> contexts;
};

// Over all positions but the first of each window.
struct TextResult {
  PoolMeasure pool;
  int64_t positions = 0;
  double nll = 0;  // mean negative log likelihood of the text, nats
  // Against the first pool; zero positions for that pool itself. KL(first || this), nats.
  int64_t compared = 0;
  double kl_mean = 0, kl_median = 0, kl_p99 = 0, kl_max = 0;
  Share top1, top5;  // same most probable token; share of its five most probable tokens that are among ours
};

}  // namespace assay
