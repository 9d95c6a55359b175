"""A target: one way to run a command somewhere."""

import shlex

import door

OPTIONS = ["-o", "BatchMode=yes", "-o", "ObscureKeystrokeTiming=no"]


class Target:
    def __init__(self, text):
        self.name, rest = text.split("=", 1)
        self.kind, spec = rest.split(":", 1)
        self.options = []
        if self.kind == "ssh":
            self.args = ["-o", "IgnoreUnknown=ObscureKeystrokeTiming"] + OPTIONS + shlex.split(spec)
        elif self.kind == "exec":
            parts = spec.split("||")
            self.plain, self.terminal = shlex.split(parts[0]), shlex.split(parts[-1])
        elif self.kind == "sh":
            self.command, _, self.clean = spec.partition(" ;; ")
        elif self.kind == "docker":
            self.door, self.box = door.Docker("", ""), spec
        elif self.kind == "sandgate":
            socket, self.box = shlex.split(spec)
            self.door = door.Sandgate(socket)
        elif self.kind == "door":
            self.door = door.door(shlex.split(spec))
        else:
            raise ValueError("unknown kind in " + text)

    def argv(self, command, tty=False):
        if self.kind == "exec":
            return (self.terminal if tty else self.plain) + [command]
        return ["ssh", "-tt" if tty else "-T"] + self.options + self.args + [command]
