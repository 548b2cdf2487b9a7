#include "engine/execute/calibration_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "cache/sip_hash.h"

namespace assay {
namespace {

static_assert(std::endian::native == std::endian::little, "the file is written as it lies in memory");

constexpr char kMagic[8] = {'A', 'S', 'S', 'A', 'Y', 'K', 'V', '1'};
constexpr size_t kSampleBytes = 4096, kSamplesPerFile = 256;

struct FileHead {
  char magic[8];
  CalibrationKey key;
  uint64_t channels;  // numbers of `key`, likewise `query`
  uint64_t heads;     // numbers of `key_amax`, likewise `value_amax`
};

absl::Status unusable(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(path + ": " + why);
}

uint64_t hash_of(std::string_view bytes, const SipKey& key) {
  SipHasher hasher(key);
  hasher.add(std::string(bytes));
  return hasher.finish();
}

// Two hashers make a key of 128 bits.
class KeyMaker {
 public:
  void add(const std::string& text) {
    low_.add(text);
    high_.add(text);
  }
  void add(uint64_t word) {
    low_.add(word);
    high_.add(word);
  }
  CalibrationKey finish() { return {low_.finish(), high_.finish()}; }

 private:
  SipHasher low_{SipKey{1, 2}}, high_{SipKey{3, 4}};
};

std::string read_at(std::ifstream& file, uint64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// Its size, its beginning and samples at even distances.
void add_weight_file(const std::filesystem::path& path, KeyMaker& maker) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  maker.add(path.filename().string());
  maker.add(error ? 0 : size);
  if (error || !file) return;
  const uint64_t step = std::max<uint64_t>(size / kSamplesPerFile, kSampleBytes);
  for (uint64_t at = 0; at < size; at += step) maker.add(read_at(file, at, kSampleBytes));
}

std::vector<std::filesystem::path> weight_files(const std::string& folder, std::error_code& error) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The whole file, which must be a regular one of exactly `bytes`: nothing is allocated on the word of a file.
absl::StatusOr<std::string> read_exactly(const std::string& path, size_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) {
    return errno == ENOENT ? absl::NotFoundError(path + ": not there") : unusable(path, "cannot be opened");
  }
  struct stat info {};
  std::string text;
  if (::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == static_cast<off_t>(bytes)) {
    text.resize(bytes);
    size_t done = 0;
    for (ssize_t got = 1; done < bytes && got > 0; done += static_cast<size_t>(std::max<ssize_t>(got, 0))) {
      got = ::read(file, text.data() + done, bytes - done);
    }
    text.resize(done);
  }
  ::close(file);
  if (text.size() != bytes) return unusable(path, "is not a calibration of this model (another size)");
  return text;
}

template <class T>
size_t take(const std::string& text, size_t at, size_t count, std::vector<T>& to) {
  to.resize(count);
  std::memcpy(to.data(), text.data() + at, count * sizeof(T));
  return at + count * sizeof(T);
}

template <class T>
void put(const std::vector<T>& values, std::string& text) {
  text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

template <class T>
bool all_sizes(const std::vector<T>& values) {
  return std::all_of(values.begin(), values.end(), [](T x) { return std::isfinite(x) && x >= 0; });
}

bool anyone_may_write(const std::string& folder) {
  struct stat info {};
  return ::stat(folder.c_str(), &info) == 0 && (info.st_mode & 0222) != 0 && ::access(folder.c_str(), W_OK) == 0;
}

bool write_all(int file, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t put = ::write(file, text.data() + done, text.size() - done);
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return ::fchmod(file, 0644) == 0 && ::fsync(file) == 0;
}

}  // namespace

std::string calibration_path(const std::string& folder, CalibrationOrigin origin) {
  const char* name = origin == CalibrationOrigin::kOperator ? "assay-calibration.bin" : "assay-calibration-cache.bin";
  return (std::filesystem::path(folder) / name).string();
}

absl::StatusOr<CalibrationKey> calibration_key(const EngineConfig& config, const std::vector<int32_t>& tokens,
                                               CalibrationOrigin origin) {
  std::error_code error;
  const std::vector<std::filesystem::path> files = weight_files(config.model_dir, error);
  std::ifstream json(std::filesystem::path(config.model_dir) / "config.json", std::ios::binary);
  if (error || !json) return absl::InternalError(config.model_dir + ": cannot be read");
  KeyMaker maker;
  maker.add(std::string(std::istreambuf_iterator<char>(json), std::istreambuf_iterator<char>()));
  for (const std::filesystem::path& file : files) add_weight_file(file, maker);
  if (origin == CalibrationOrigin::kOperator) return maker.finish();
  maker.add(static_cast<uint64_t>(config.max_model_len));
  for (int32_t token : tokens) maker.add(static_cast<uint64_t>(token));
  return maker.finish();
}

absl::StatusOr<ChannelMoments> read_calibration(const std::string& path, const CalibrationKey& key,
                                                const ModelConfig& model) {
  const size_t heads = static_cast<size_t>(model.num_layers) * static_cast<size_t>(model.num_kv_heads);
  const size_t channels = heads * static_cast<size_t>(model.head_dim);
  const size_t body = sizeof(FileHead) + 2 * channels * sizeof(double) + 2 * heads * sizeof(float);
  const absl::StatusOr<std::string> text = read_exactly(path, body + sizeof(uint64_t));
  if (!text.ok()) return text.status();
  FileHead head;
  uint64_t checksum = 0;
  std::memcpy(&head, text->data(), sizeof head);
  std::memcpy(&checksum, text->data() + body, sizeof checksum);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) return unusable(path, "is not a calibration file");
  if (checksum != hash_of(std::string_view(*text).substr(0, body), {})) return unusable(path, "is damaged");
  if (head.key != key || head.channels != channels || head.heads != heads) {
    return unusable(path, "was made for another model, text or context length");
  }
  ChannelMoments moments;
  size_t at = take(*text, sizeof head, channels, moments.key);
  at = take(*text, at, channels, moments.query);
  at = take(*text, at, heads, moments.key_amax);
  take(*text, at, heads, moments.value_amax);
  if (!all_sizes(moments.key) || !all_sizes(moments.query) || !all_sizes(moments.key_amax) ||
      !all_sizes(moments.value_amax)) {
    return unusable(path, "holds a value that is not finite or negative");
  }
  return moments;
}

absl::Status write_calibration(const std::string& path, const CalibrationKey& key, const ChannelMoments& moments) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (!anyone_may_write(folder)) return absl::PermissionDeniedError(folder + ": may not be written");
  FileHead head{{}, key, moments.key.size(), moments.key_amax.size()};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  std::string text(reinterpret_cast<const char*>(&head), sizeof head);
  put(moments.key, text);
  put(moments.query, text);
  put(moments.key_amax, text);
  put(moments.value_amax, text);
  const uint64_t checksum = hash_of(text, {});
  text.append(reinterpret_cast<const char*>(&checksum), sizeof checksum);

  std::string temporary = path + ".XXXXXX";
  const int file = ::mkstemp(temporary.data());
  if (file < 0) return absl::PermissionDeniedError(folder + ": may not be written");
  const bool written = write_all(file, text);
  ::close(file);
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  ::unlink(temporary.c_str());
  return absl::InternalError(path + ": cannot be written: " + std::strerror(errno));
}

}  // namespace assay
