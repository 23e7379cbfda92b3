// Numbers between two bounds.
#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"
#include "text/grammar/json_pieces.h"

namespace moeflux {
namespace {

// A decimal numeral without sign; the fraction has no zeros at its end.
struct Numeral {
  std::string whole = "0", fraction = "";
  bool exclusive = false;

  char digit(std::size_t i) const {  // of the fraction
    return i < fraction.size() ? fraction[i] : '0';
  }
  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool less_than(const Numeral& other) const {
    if (whole.size() != other.whole.size()) return whole.size() < other.whole.size();
    return std::pair(whole, fraction) < std::pair(other.whole, other.fraction);
  }
};

struct Signed {
  bool negative;
  Numeral magnitude;
};

// "-12.5e-3" as digits before and behind the point.
Signed to_signed(const DecimalBound& bound) {
  const std::string text = dump_json(bound.value);
  Signed out = {text.starts_with('-'), {"", "", bound.exclusive}};
  std::string digits;
  std::size_t n_whole = 0;  // of the digits are before the point
  bool point = false;
  std::size_t at = out.negative ? 1 : 0;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    point = point || text[at] == '.';
    if (text[at] != '.') digits += text[at];
    if (!point) ++n_whole;
  }
  int exponent = at < text.size() ? std::atoi(text.c_str() + at + 1) : 0;
  for (; exponent < 0; ++exponent) {
    if (n_whole == 0) {
      digits.insert(digits.begin(), '0');
    } else {
      --n_whole;
    }
  }
  n_whole += static_cast<std::size_t>(exponent);
  if (n_whole > digits.size()) digits.resize(n_whole, '0');
  Numeral& m = out.magnitude;
  m.whole = digits.substr(0, n_whole);
  m.fraction = digits.substr(n_whole);
  m.whole.erase(0, std::min(m.whole.find_first_not_of('0'), m.whole.size()));
  if (m.whole.empty()) m.whole.push_back('0');
  m.fraction.erase(m.fraction.find_last_not_of('0') + 1);
  if (m.is_zero()) out.negative = false;
  return out;
}

Numeral next_integer(Numeral n) {
  for (std::size_t i = n.whole.size(); i-- > 0;) {
    if (n.whole[i] != '9') {
      ++n.whole[i];
      return n;
    }
    n.whole[i] = '0';
  }
  n.whole.insert(0, 1, '1');
  return n;
}

Numeral previous_integer(Numeral n) {  // of a positive one
  for (std::size_t i = n.whole.size(); i-- > 0;) {
    if (n.whole[i] != '0') {
      --n.whole[i];
      break;
    }
    n.whole[i] = '9';
  }
  if (n.whole.size() > 1 && n.whole[0] == '0') n.whole.erase(0, 1);
  return n;
}

// Numerals without sign between two others. The functions return nothing where nothing fits.
class Between {
 public:
  Between(Grammar& g, const DecimalRange& range, Numeral low, Numeral high)
      : g_(g), low_(std::move(low)), high_(std::move(high)) {
    if (range.integer) {
      to_integers();
    } else {
      fraction_ = std::max({static_cast<std::size_t>(range.max_fraction), low_.fraction.size() + 1,
                            high_.fraction.size() + 1});
    }
  }

  std::optional<ExprId> run() {
    if (empty_ || high_.less_than(low_)) return std::nullopt;
    std::vector<ExprId> ways;
    for (std::size_t n = low_.whole.size(); n <= high_.whole.size(); ++n) {
      const auto way = whole(n, 0, n == low_.whole.size(), n == high_.whole.size());
      if (way) ways.push_back(*way);
    }
    if (ways.empty()) return std::nullopt;
    return g_.choice(std::move(ways));
  }

 private:
  using Way = std::optional<ExprId>;

  void to_integers() {
    if (!low_.fraction.empty() || low_.exclusive) low_ = next_integer(low_);
    if (high_.fraction.empty() && high_.exclusive) {
      if (high_.is_zero()) empty_ = true;
      high_ = previous_integer(high_);
    }
    low_.fraction.clear();
    high_.fraction.clear();
    low_.exclusive = high_.exclusive = false;
  }

  ExprId digits(char first, char last, std::size_t min, std::size_t max) {
    const CodePoints set(static_cast<char32_t>(first), static_cast<char32_t>(last));
    return g_.repeat(g_.set(set), static_cast<std::uint32_t>(min), static_cast<std::uint32_t>(max));
  }

  // One digit from `low` to `high` and `rest(is lowest, is highest)` after it. The digits between
  // the ends have the same rest.
  template <class Rest>
  Way digit_then(char low, char high, const Rest& rest) {
    std::vector<ExprId> ways;
    const auto add = [&](char first, char last, const Way& tail) {
      if (tail) ways.push_back(g_.sequence({digits(first, last, 1, 1), *tail}));
    };
    if (low > high) return std::nullopt;
    add(low, low, rest(true, low == high));
    if (high > low) add(high, high, rest(false, true));
    if (high - low > 1) {
      add(static_cast<char>(low + 1), static_cast<char>(high - 1), rest(false, false));
    }
    if (ways.empty()) return std::nullopt;
    return g_.choice(std::move(ways));
  }

  // The digits before the point from `at`, of n. `at_low`: so far they are those of the low bound.
  Way whole(std::size_t n, std::size_t at, bool at_low, bool at_high) {
    if (at == n) return fraction(0, at_low, at_high, true);
    if (!at_low && !at_high && at > 0) {
      return g_.sequence({digits('0', '9', n - at, n - at), *fraction(0, false, false, true)});
    }
    const char least = at == 0 && n > 1 ? '1' : '0';
    const char low = at_low ? low_.whole[at] : least, high = at_high ? high_.whole[at] : '9';
    return digit_then(low, high, [&](bool lowest, bool highest) {
      return whole(n, at + 1, at_low && lowest, at_high && highest);
    });
  }

  // The digits behind the point from `at`; `point` is still to be written.
  Way fraction(std::size_t at, bool at_low, bool at_high, bool point) {
    const bool low_done = low_.fraction.size() <= at, high_done = high_.fraction.size() <= at;
    if (at_low && low_done && !low_.exclusive) at_low = false;
    const bool may_stop = !(at_low) && !(at_high && high_done && high_.exclusive);
    Way more;
    if (at < fraction_ && !(at_high && high_done)) {
      if (!at_low && !at_high) {
        more = digits('0', '9', 1, fraction_ - at);
      } else {
        more = digit_then(at_low ? low_.digit(at) : '0', at_high ? high_.digit(at) : '9',
                          [&](bool lowest, bool highest) {
                            return fraction(at + 1, at_low && lowest, at_high && highest, false);
                          });
      }
    }
    if (more && point) more = g_.sequence({g_.literal("."), *more});
    if (!may_stop) return more;
    return more ? g_.optional(*more) : g_.literal("");
  }

  Grammar& g_;
  Numeral low_, high_;
  std::size_t fraction_ = 0;  // digits
  bool empty_ = false;
};

// The bound, or the end of what is generated; nothing when the bound lies beyond it on the side
// where no number is left.
Signed bound_or_end(const std::optional<DecimalBound>& bound, bool low, std::size_t max_digits) {
  const Signed end = {low, {std::string(max_digits, '9')}};
  if (!bound) return end;
  if (!bound->value.is_number()) fail(Errc::BadInput, "a bound must be a number");
  const Signed exact = to_signed(*bound);
  if (exact.magnitude.whole.size() <= max_digits && exact.magnitude.fraction.size() <= 30) {
    return exact;
  }
  if (exact.magnitude.whole.size() > max_digits && exact.negative == low) return end;
  fail(Errc::Unsupported, "the bound {} is outside of the numbers that can be generated",
       dump_json(bound->value));
}

}  // namespace

ExprId add_decimal_range(Grammar& grammar, const DecimalRange& range) {
  const std::size_t max_digits = range.integer ? 18 : 15;
  const Signed low = bound_or_end(range.low, true, max_digits);
  const Signed high = bound_or_end(range.high, false, max_digits);
  std::vector<ExprId> ways;
  if (!high.negative) {
    const Numeral from = low.negative ? Numeral{} : low.magnitude;
    if (const auto way = Between(grammar, range, from, high.magnitude).run()) ways.push_back(*way);
  }
  if (low.negative) {
    const Numeral from = high.negative ? high.magnitude : Numeral{"0", "", true};
    if (const auto way = Between(grammar, range, from, low.magnitude).run()) {
      ways.push_back(grammar.sequence({grammar.literal("-"), *way}));
    }
  }
  return ways.empty() ? grammar.nothing() : grammar.choice(std::move(ways));
}

}  // namespace moeflux
