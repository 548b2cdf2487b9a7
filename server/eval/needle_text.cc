#include "server/eval/needle_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

namespace assay {
namespace {

constexpr std::array kAdjectives = {"old",    "yellow", "crooked", "silent", "wooden",  "narrow", "bright", "heavy",
                                    "broken", "little", "gilded",  "dusty",  "curious", "copper", "sleepy", "northern"};
constexpr std::array kNouns = {"lantern", "kettle", "bridge", "garden", "clock",  "ladder", "letter", "violin", "chair",
                               "harbour", "mirror", "wagon",  "tower",  "basket", "window", "anchor", "pillow", "well"};
constexpr std::array kPeople = {"The miller", "A neighbour",    "The captain", "My aunt",        "The teacher",
                                "Old Marten", "The gardener",   "Her brother", "The stranger",   "A young clerk",
                                "The doctor", "One of the men", "Anna",        "The shopkeeper", "His daughter"};
constexpr std::array kActions = {"walked along the river",
                                 "looked out at the rain",
                                 "counted the coins twice",
                                 "waited for the evening train",
                                 "mended the gate",
                                 "read the newspaper aloud",
                                 "carried the apples to the door",
                                 "forgot what had been said",
                                 "laughed at the idea",
                                 "put the book back on its shelf",
                                 "asked for a cup of tea",
                                 "listened to the wind",
                                 "wrote a short note",
                                 "fed the horses",
                                 "closed the shutters"};
constexpr std::array kJoins = {"and then",
                               "because nobody else",
                               "while the others watched and",
                               "although it was late and nobody",
                               "and afterwards",
                               "before anyone",
                               "but in the end"};
constexpr std::array kEndings = {"spoke of it again",
                                 "remembered the way home",
                                 "was the least surprised",
                                 "said good night",
                                 "went on as if nothing had changed",
                                 "thought better of it",
                                 "had time to think",
                                 "was glad of the fire",
                                 "went quietly up the stairs"};
constexpr std::array kOpenings = {"That morning", "In the afternoon", "Towards evening", "Some days later",
                                  "As so often",  "For a while",      "On the way back", "Once more"};

// SplitMix64: the same numbers with every compiler.
class Draw {
 public:
  explicit Draw(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return next() % n; }
  template <class Words>
  std::string word(const Words& words) {
    return words[below(words.size())];
  }

 private:
  uint64_t state_;
};

std::string sentence(Draw& draw) {
  std::string person = draw.word(kPeople);
  if (draw.below(3) == 0) {
    person[0] = static_cast<char>(person[0] == 'A' && person[1] == 'n' ? 'A' : person[0] | 0x20);
    person = draw.word(kOpenings) + " " + person;
  }
  const std::string action = draw.word(kActions);
  if (draw.below(2) == 0) return fmt::format("{} {}.", person, action);
  return fmt::format("{} {} {} {}.", person, action, draw.word(kJoins), draw.word(kEndings));
}

struct Fact {
  std::string name, value;
};

// Sentences that state a fact; {0} its name, {1} its value.
std::string statement(const Fact& fact, Draw& draw) {
  switch (draw.below(3)) {
    case 0:
      return fmt::format("Remember that the ticket number for the {} is {}.", fact.name, fact.value);
    case 1:
      return fmt::format("As for the {}, its ticket number is {}.", fact.name, fact.value);
    default:
      return fmt::format("The {} has the ticket number {}.", fact.name, fact.value);
  }
}

// Facts with names that differ.
std::vector<Fact> make_facts(size_t count, Draw& draw) {
  std::vector<Fact> facts;
  std::set<std::string> names;
  while (facts.size() < count) {
    const std::string name = draw.word(kAdjectives) + " " + draw.word(kNouns);
    if (!names.insert(name).second) continue;
    facts.push_back({name, std::to_string(100000 + draw.below(900000))});
  }
  return facts;
}

// The first fact at `depth`, the others at even distances.
std::string prose(uint64_t seed, size_t num_sentences, double depth, const std::vector<Fact>& facts) {
  Draw draw(seed);
  std::vector<std::string> sentences;
  for (size_t i = 0; i < num_sentences; ++i) sentences.push_back(sentence(draw));
  const auto insert = [&](double at, const Fact& fact) {
    const auto place = static_cast<int64_t>(at * static_cast<double>(num_sentences));
    sentences[static_cast<size_t>(std::min<int64_t>(place, static_cast<int64_t>(num_sentences) - 1))] +=
        " " + statement(fact, draw);
  };
  for (size_t i = 1; i < facts.size(); ++i)
    insert((static_cast<double>(i) - 0.5) / static_cast<double>(facts.size() - 1), facts[i]);
  insert(depth, facts[0]);
  std::string text;
  for (size_t i = 0; i < sentences.size(); ++i) {
    if (i > 0) text += draw.below(6) == 0 ? "\n\n" : " ";
    text += sentences[i];
  }
  return text;
}

}  // namespace

absl::StatusOr<NeedlePrompt> make_needle_prompt(uint64_t seed, int64_t most_tokens, double depth,
                                                const std::function<int64_t(const std::string&)>& count_tokens) {
  Draw draw(seed ^ 0x6e6565646c65u);
  constexpr size_t kTokensPerFact = 128;  // about
  const std::vector<Fact> facts =
      make_facts(std::clamp<size_t>(static_cast<size_t>(most_tokens) / kTokensPerFact, 2, 24), draw);
  const auto text_of = [&](size_t sentences) {
    return prose(seed, sentences, depth, facts) +
           fmt::format("\n\nWhat is the ticket number for the {}?", facts[0].name);
  };
  size_t fits = 0, too_long = static_cast<size_t>(most_tokens);  // a sentence has more than one token
  while (too_long - fits > 1) {
    const size_t middle = (fits + too_long) / 2;
    (count_tokens(text_of(middle)) <= most_tokens ? fits : too_long) = middle;
  }
  if (fits == 0) return absl::InvalidArgumentError(fmt::format("no needle prompt fits {} tokens", most_tokens));
  return NeedlePrompt{text_of(fits), facts[0].value};
}

}  // namespace assay
