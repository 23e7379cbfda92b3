# What `cmake --install` puts where: the program with its man pages, completions and the bundled model; the library with
# its headers, a CMake package and a pkg-config file. Everything below the prefix can be moved as a whole.
include(CMakePackageConfigHelpers)

install(TARGETS moeflux RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY models/demo DESTINATION ${CMAKE_INSTALL_DATADIR}/moeflux/models)

# Where systemd looks for units of a user, also below ~/.local.
option(MOEFLUX_INSTALL_USER_UNITS "Install units for systemd --user" ON)
if(MOEFLUX_INSTALL_USER_UNITS)
  set(units ${CMAKE_INSTALL_DATADIR}/systemd/user)
  install(FILES packaging/user/moeflux.socket DESTINATION ${units})
  # The prefix is known only now: `cmake --install --prefix` may say another one.
  install(CODE "set(moeflux_bin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
    configure_file(${CMAKE_SOURCE_DIR}/packaging/user/moeflux.service.in
      \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${units}/moeflux.service\" @ONLY)
    message(STATUS \"Installing: \$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${units}/moeflux.service\")")
endif()

# The program writes its own man pages and completions: they cannot tell anything else than its --help.
if(NOT CMAKE_CROSSCOMPILING)
  set(generated ${CMAKE_BINARY_DIR}/generated)
  add_custom_command(OUTPUT ${generated}/stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${generated}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}/man ${generated}/completions
    COMMAND moeflux man-page --directory ${generated}/man
    COMMAND moeflux completion bash > ${generated}/completions/moeflux
    COMMAND moeflux completion zsh > ${generated}/completions/_moeflux
    COMMAND moeflux completion fish > ${generated}/completions/moeflux.fish
    COMMAND ${CMAKE_COMMAND} -E touch ${generated}/stamp
    DEPENDS moeflux
    COMMENT "Writing man pages and completions"
    VERBATIM)
  add_custom_target(moeflux_pages ALL DEPENDS ${generated}/stamp)
  install(DIRECTORY ${generated}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  install(FILES ${generated}/completions/moeflux
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
  install(FILES ${generated}/completions/_moeflux DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
  install(FILES ${generated}/completions/moeflux.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()

install(FILES include/moeflux/moeflux.h include/moeflux/moeflux.hpp
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moeflux)
# Two sets: who links the shared library needs none of the static one's dependencies.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moeflux)
foreach(kind shared static)
  install(TARGETS moeflux_${kind} EXPORT moeflux_${kind}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT moeflux_${kind} NAMESPACE moeflux:: FILE moeflux-${kind}.cmake DESTINATION ${package_dir})
endforeach()
configure_package_config_file(cmake/moefluxConfig.cmake.in ${CMAKE_BINARY_DIR}/moefluxConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moefluxConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moefluxConfig.cmake ${CMAKE_BINARY_DIR}/moefluxConfigVersion.cmake
  DESTINATION ${package_dir})

if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" up ${up})
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
configure_file(cmake/moeflux.pc.in ${CMAKE_BINARY_DIR}/moeflux.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/moeflux.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
