// What `moeflux doctor` prints of a report.
#pragma once

#include <string>

#include "base/json.h"
#include "engine/measure/doctor.h"

namespace moeflux::cli {

Json to_json(const DoctorReport& report);
std::string to_text(const DoctorReport& report, bool color);

}  // namespace moeflux::cli
