/* The places where the tools of a guest keep their files (docs/protocols.md, section 3). */

#ifndef PLACES_H
#define PLACES_H

#define VJOB_RUN "/run/rmsplugin"

#define VJOB_BIN VJOB_RUN "/bin"
#define VJOB_ETC VJOB_RUN "/etc"
#define VJOB_JOB VJOB_RUN "/job"     /* files of a start, and its user's requests; on the image's disk, if any */
#define VJOB_STATE VJOB_RUN "/state" /* the progress of the script; in memory: a full disk does not lose its end */
#define VJOB_OUTPUT VJOB_RUN "/output"
#define VJOB_GROUP VJOB_RUN "/group"   /* a link to the control group of the job's processes, if there is one */
#define VJOB_USAGE VJOB_RUN "/usage"   /* the use of these processes */
#define VJOB_SCRIPT VJOB_RUN "/script" /* a link to the path that the script has on the front, if configure could make it */
#define VJOB_IMAGE VJOB_RUN "/image"   /* files of the image as they were before the first change */
#define VJOB_LOGIN VJOB_RUN "/login"

#define IMAGE_TOOLS "/usr/lib/rmsplugin" /* of an image of contrib/guest-image: vjob-tools, as when it was built */

#endif
