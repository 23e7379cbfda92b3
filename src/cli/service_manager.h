// What a service manager such as systemd hands to a service it starts, and what it wants to hear
// from it: sockets that listen already, and when the service is ready. Without one nothing happens.
#pragma once

#include <string_view>
#include <vector>

namespace moeflux::cli {

// The sockets that were handed over for this process (LISTEN_FDS); programs started later do not
// get them. Throws Error(BadInput) for variables that make no sense.
std::vector<int> inherited_sockets();

// Sent to NOTIFY_SOCKET, where there is one. What is not heard is lost.
void notify_ready(std::string_view status);   // from now on requests are answered
void notify_status(std::string_view status);  // one line for `systemctl status`
void notify_stopping();

}  // namespace moeflux::cli
