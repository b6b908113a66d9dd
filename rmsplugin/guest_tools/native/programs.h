/* The programs of vjob-tools, by name. */

#ifndef PROGRAMS_H
#define PROGRAMS_H

#define PROGRAMS

#endif
