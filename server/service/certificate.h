// The report on what the KV cache did to one request: those of its sequences, taken together.
//
// Threads: plain values and pure functions.
#pragma once

#include "engine/api/certificate.h"

namespace assay {

// Adds the report of another sequence of the same request: counts add up, the worst cell is the worst of all, and the whole
// is certified only if each sequence is.
void merge_certificate(const CertificateReport& more, CertificateReport& report);

}  // namespace assay
