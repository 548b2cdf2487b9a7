// What the meter said of one sequence, added up over its steps.
//
// Owns: counts and worst cells. Threads: the engine thread. Errors: none.
#pragma once

#include <cstdint>

#include "engine/api/certificate.h"
#include "engine/api/request.h"
#include "engine/core/certificate_rules.h"
#include "kernels/kv/meter.h"

namespace assay {

class CertificateTally {
 public:
  // Cells of one step. A step run again after preemption is metered again, and counts again. `backed`: all pages of the
  // sequence have exact rows.
  void add(const kv::SequenceMeter& step, bool backed);
  // Cells of a decode step of the exact pool, which has no meter to ask.
  void add_exact(int64_t cells) { exact_decode_cells_ += cells; }

  CertificateReport report(const Request& request, const CertificateRules& rules) const;

 private:
  kv::SequenceMeter sum_;
  int64_t exact_decode_cells_ = 0;
  bool backed_ = true;  // in every step
};

}  // namespace assay
