#include "text/jinja/meter.h"

#include "base/error.h"

namespace moeflux::jinja {

void Meter::out_of_steps() const {
  fail(Errc::LimitExceeded, "the template does more than {} steps of work", limits_.max_steps);
}

void Meter::out_of_memory() const {
  fail(Errc::LimitExceeded, "the values of the template need more than {} bytes of memory",
       limits_.max_memory_bytes);
}

void Meter::string_too_long() const {
  fail(Errc::LimitExceeded, "the template makes a text of more than {} bytes",
       limits_.max_output_bytes);
}

void Meter::too_deep() const {
  fail(Errc::LimitExceeded, "the template is evaluated more than {} levels deep",
       limits_.max_depth);
}

}  // namespace moeflux::jinja
