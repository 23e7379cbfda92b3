# The short way to everything; CMakePresets.json holds the real configuration.
#   make        build build/release/moeflux
#   make demo   install what is missing, build, let the bundled model answer
#   make test   install what is missing, build, run every test;  WERROR=ON: a warning stops the build;
#               CI=true: install Chromium, too, to test the web page
#   make lint   what neither sees: clang, headers by themselves, format, sanitizers over a part of the tests;
#               STEPS="format headers": only these
#   make asan   the tests under AddressSanitizer and UBSan;  make tsan: under ThreadSanitizer
#   make arm64  cross-compile for 64-bit Arm, run kernel tests with qemu; says what it needs when that is missing
#   make install   build, and install below PREFIX (/usr/local; ~/.local needs no root); DESTDIR: in front of it
#   make deb    Debian packages in build/packages
#   make format / make tidy / make clean

JOBS ?= $(shell nproc)
WERROR ?= OFF
PREFIX ?= /usr/local
BINARY := build/release/moeflux

.PHONY: all deps demo test install deb lint asan tsan arm64 format tidy clean

all: deps build/release/build.ninja
	cmake --build --preset release --parallel $(JOBS) --target moeflux

deps:
	@scripts/install_deps.sh

build/release/build.ninja: CMakePresets.json
	cmake --preset release -DMOEFLUX_WERROR=$(WERROR)

build/%/build.ninja: CMakePresets.json
	cmake --preset $*

demo: all
	@scripts/demo.sh $(BINARY)

# In CI the web page is tested in a browser. Elsewhere it is where Chromium is there already: it is large.
test: deps build/release/build.ninja
	@if [ "$(CI)" = true ]; then scripts/install_deps.sh --browser; fi
	cmake --build --preset release --parallel $(JOBS)
	ctest --preset release --parallel $(JOBS)

install: all
	cmake --build --preset release --parallel $(JOBS) --target moeflux_pages moeflux_shared moeflux_static
	DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"
	@case ":$$PATH:" in *":$(PREFIX)/bin:"*) ;; *) echo "moeflux: $(PREFIX)/bin is not in PATH" >&2 ;; esac

deb:
	@JOBS=$(JOBS) scripts/build_deb.sh

lint:
	@scripts/install_deps.sh clang clang-format
	@scripts/lint.py --jobs $(JOBS) $(STEPS)

asan tsan: %: deps build/%/build.ninja
	cmake --build --preset $@ --parallel $(JOBS)
	ctest --preset $@ --parallel $(JOBS)

arm64:
	@JOBS=$(JOBS) scripts/test_arm64.sh

format:
	git ls-files '*.h' '*.cpp' | xargs clang-format -i

tidy: build/dev/build.ninja
	git ls-files 'src/*.cpp' | xargs clang-tidy -p build/dev --quiet

clean:
	rm -rf build
