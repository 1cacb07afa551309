/* Declarations shared by work.c, launch.c, pump.c and end.c. */
#ifndef WORK_H
#define WORK_H

#include "guard.h"

extern struct work *first;
void shut(int *fd);
void release(struct work *work);
void send_failed(struct work *work, uint32_t error, uint8_t where);
void feed(struct work *work);
void hear(struct work *work);
void work_ended(struct work *work);

/* Each returns 0 or an errno; opened descriptors are in the work. */
int launch_command(struct work *work, const struct message *message, const int *pipes);
int launch_file(struct work *work, const struct message *message);

#endif
