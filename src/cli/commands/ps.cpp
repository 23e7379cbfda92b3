// moeflux ps: what a running server has in memory.
#include <memory>

#include "cli/commands/commands.h"
#include "cli/options/general_options.h"
#include "cli/options/server_options.h"
#include "cli/reports/ps_report.h"
#include "cli/terminal/interrupt.h"

namespace moeflux::cli {
namespace {

struct PsOptions {
  ServerOptions server;
  GeneralOptions general;
  bool json = false;
};

int run(const PsOptions& options) {
  const HttpClient client = make_client(options.server, "ps");
  ServerStatus status;
  {
    const InterruptGuard guard;
    status = read_status(client, [] { return interrupted(); });
  }
  write_stdout(options.json ? dump_json(status_json(status), 2) + "\n" : status_text(status));
  return kSuccess;
}

}  // namespace

void add_ps_command(CommandLine& line) {
  const auto options = std::make_shared<PsOptions>();
  Command& command = line.add("ps", "Show what a running server has in memory.");
  add_server_options(command, options->server,
                     fmt::format("which server (default: {})", kDefaultServer));
  command.group("Output").flag("--json", options->json, "print JSON");
  add_general_options(command, options->general);
  command.example("ps")
      .example("ps --server http://192.168.1.20:9099 --api-key secret")
      .example("ps --server /run/user/1000/moeflux.sock --json");
  command.run([options](const std::vector<std::string>& /*none*/) { return run(*options); });
}

}  // namespace moeflux::cli
