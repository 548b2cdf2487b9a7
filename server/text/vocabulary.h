// Token texts and their ids, both ways.
//
// Threads: immutable after the last add. Memory: one copy of every text, 8 bytes a slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

class Vocabulary {
 public:
  // For up to `count` tokens with ids below `id_end`.
  void reserve(std::size_t count, int32_t id_end);
  // False when the text or the id is there already.
  bool add(std::string_view text, int32_t id);

  int32_t find(std::string_view text) const;  // -1: not there
  bool contains(int32_t id) const;
  std::string_view text(int32_t id) const;  // empty: no such id
  int32_t id_end() const { return static_cast<int32_t>(places_.size()); }

 private:
  struct Slot {
    uint32_t tag = 0;
    int32_t id = -1;
  };
  struct Place {
    uint32_t offset = 0;
    uint32_t length = kNone;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  std::string texts_;
  std::vector<Place> places_;  // by id
  std::vector<Slot> slots_;    // open addressing, a power of two, at most half full
};

}  // namespace assay
