// The result of a calibration pass as a file beside the model.
//
// Two files: what `assay calibrate` made from the operator's own text, valid for the model; and what a start kept for
// the next one, valid for the model, the tokens and the context length of the pass. Which model it is, is read off
// config.json and samples of the weight files: an identity, not a checksum, since moments of another model only loosen
// bounds. Everything in a file is checked before it is used.
//
// Threads: pure functions around file calls; files are replaced whole, so any number of processes may read and write.
// Errors: absl::Status that names the file; NotFound where there is none.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/execute/calibration.h"

namespace assay {

struct CalibrationKey {
  uint64_t low = 0, high = 0;
  bool operator==(const CalibrationKey&) const = default;
};

enum class CalibrationOrigin { kOperator, kStart };

std::string calibration_path(const std::string& folder, CalibrationOrigin origin);

// Of config.model_dir; for kStart also of `tokens` and config.max_model_len. Internal where the folder cannot be read.
absl::StatusOr<CalibrationKey> calibration_key(const EngineConfig& config, const std::vector<int32_t>& tokens,
                                               CalibrationOrigin origin);

// InvalidArgument: another key or size than asked for, a broken checksum, a value that is not finite or negative.
absl::StatusOr<ChannelMoments> read_calibration(const std::string& path, const CalibrationKey& key,
                                                const ModelConfig& model);

// Replaces the file as a whole. PermissionDenied where the folder may not be written (no write bit counts for
// everyone).
absl::Status write_calibration(const std::string& path, const CalibrationKey& key, const ChannelMoments& moments);

}  // namespace assay
