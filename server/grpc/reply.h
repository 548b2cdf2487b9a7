// What a generation says -> messages of assay.v1, and absl::Status -> grpc::Status.
//
// Threads: pure functions. Errors: none.
#pragma once

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "assay/v1/inference.pb.h"
#include "engine/api/meters.h"
#include "engine/api/model_info.h"
#include "server/service/generation.h"
#include "server/service/text_event.h"

namespace assay::rpc {

v1::GenerateResponse event_message(const std::string& id, const TextEvent& event, const Tokenizer& tokenizer);

// What the last message of a call says besides the event. `generation` is done and has not failed.
void add_summary(const Generation& generation, v1::GenerateResponse& message);

v1::MeterSnapshot meter_message(const MeterSnapshot& snapshot, const PoolInfo& pool);

// Same code, same text as HTTP.
grpc::Status grpc_status(const absl::Status& status);

}  // namespace assay::rpc
