// Where the reference data lies that is other people's work and not in the repository.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace assay {

// $ASSAY_REFERENCE_DATA, else the folder `shared` beside the repository.
inline std::filesystem::path reference_data() {
  const char* folder = std::getenv("ASSAY_REFERENCE_DATA");
  return folder != nullptr ? std::filesystem::path(folder) : std::filesystem::path(ASSAY_SOURCE_DIR) / ".." / "shared";
}

}  // namespace assay
