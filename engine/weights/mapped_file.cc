#include "engine/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace assay {
namespace {

// Closes when it goes out of scope; a mapping outlives its descriptor.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

absl::Status system_error(const std::string& path) {
  const std::string message = path + ": " + std::strerror(errno);
  return errno == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return system_error(path);
  struct stat info {};
  if (fstat(file.fd, &info) != 0) return system_error(path);
  if (!S_ISREG(info.st_mode)) return absl::FailedPreconditionError(path + ": not a regular file");
  if (info.st_size == 0) return absl::FailedPreconditionError(path + ": the file is empty");
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return system_error(path);
  madvise(data, size, MADV_WILLNEED);  // start reading now: everything will be used
  return std::unique_ptr<MappedFile>(new MappedFile(static_cast<const std::byte*>(data), size));
}

MappedFile::~MappedFile() {
  munmap(const_cast<std::byte*>(data_), size_);
}

absl::StatusOr<std::string> read_text_file(const std::string& path, size_t max_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(path + ": cannot be read");
  std::string text;
  char block[4096];
  while (file.read(block, sizeof(block)), file.gcount() > 0) {
    text.append(block, static_cast<size_t>(file.gcount()));
    if (text.size() > max_bytes) {
      return absl::InvalidArgumentError(path + ": larger than " + std::to_string(max_bytes) + " bytes");
    }
  }
  if (file.bad()) return absl::FailedPreconditionError(path + ": reading failed");
  return text;
}

}  // namespace assay
