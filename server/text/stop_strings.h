// Finds stop strings in text that arrives in pieces and says what may be sent.
//
// The match that ends first wins; of several that end at the same place, the one that starts first. The answer
// therefore does not depend on how the text is cut into pieces. Held back: exactly the longest suffix that is a proper
// prefix of a stop string. A stop string that is the text of a special token never shows up in text from which special
// tokens are skipped: the caller passes such tokens to the engine as stop ids.
//
// Threads: one owner. Cost: O(1) amortised per byte, plus the length of the held text per piece.
// Errors: none; empty stop strings match nothing.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

class StopStrings {
 public:
  // `include_stop_string`: the text that is sent ends with the stop string instead of just before it.
  StopStrings(const std::vector<std::string>& stops, bool include_stop_string);

  struct Output {
    std::string text;               // may be sent now
    std::optional<size_t> matched;  // index in `stops`: the text ends here, later pieces give nothing
  };

  // `piece` and the stop strings are UTF-8 and hold whole characters; then so does the output.
  Output push(std::string_view piece);

  // The end came without a match (length limit, end token): gives out what was held back. Empty after a match.
  std::string finish();

  bool matched() const { return done_; }

 private:
  struct Edge {
    unsigned char byte;
    int node;
  };
  struct Node {
    std::vector<Edge> edges;
    int fail = 0;      // longest proper suffix that is also in the tree
    size_t depth = 0;  // length of the prefix that the node stands for
    int stop = -1;     // longest stop string that ends here
  };

  int child(int node, unsigned char byte) const;
  int step(int node, unsigned char byte) const;
  void insert(std::string_view stop, int index);
  void link();

  std::vector<Node> nodes_;  // an Aho-Corasick automaton; node 0 is the root
  std::vector<size_t> lengths_;
  bool include_stop_string_;
  int state_ = 0;
  bool done_ = false;
  std::string held_;  // always the text of nodes_[state_]
};

}  // namespace assay
