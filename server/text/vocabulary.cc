#include "server/text/vocabulary.h"

#include <bit>
#include <functional>

namespace assay {

void Vocabulary::reserve(size_t count, int32_t id_end) {
  slots_.assign(std::bit_ceil(2 * count + 2), Slot());
  places_.assign(static_cast<size_t>(id_end), Place());
}

bool Vocabulary::add(std::string_view text, int32_t id) {
  if (find(text) >= 0 || contains(id)) return false;
  places_[static_cast<size_t>(id)] = {static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(text.size())};
  texts_.append(text);
  const size_t hash = std::hash<std::string_view>()(text);
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].id >= 0) i = (i + 1) & mask;
  slots_[i] = {static_cast<uint32_t>(hash >> 32), id};
  return true;
}

int32_t Vocabulary::find(std::string_view text) const {
  if (slots_.empty()) return -1;
  const size_t hash = std::hash<std::string_view>()(text);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i].id >= 0; i = (i + 1) & mask) {
    if (slots_[i].tag == static_cast<uint32_t>(hash >> 32) && this->text(slots_[i].id) == text) return slots_[i].id;
  }
  return -1;
}

bool Vocabulary::contains(int32_t id) const {
  return id >= 0 && id < id_end() && places_[static_cast<size_t>(id)].length != kNone;
}

std::string_view Vocabulary::text(int32_t id) const {
  if (!contains(id)) return {};
  const Place& place = places_[static_cast<size_t>(id)];
  return std::string_view(texts_).substr(place.offset, place.length);
}

}  // namespace assay
