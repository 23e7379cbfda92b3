// The tables that blocks of less than 4 bits look their values up in.
#pragma once
