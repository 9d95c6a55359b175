"""What a sandbox can live through, at two doors that speak HTTP over a unix
socket: Sandgate's, and Docker's with the nearest thing it has.

A door remembers what was made through it; clear removes all of that.
"""

import concurrent.futures
import json
import os
import struct
import time
import urllib.parse

from unixhttp import API

PARALLEL = 4  # how many at once make and remove


class Door:
    def __init__(self, path):
        self.path = path
        self.api = API(path)
        self.boxes, self.images = [], []

    def data(self, method, path, body=None):
        answer = self.api.call(method, path, body)
        return json.loads(answer) if answer else None

    def clear(self):
        boxes, images, wrong = self.boxes, self.images, []
        self.boxes, self.images = [], []

        def forget(how, one):
            try:
                how(self.again(), one)
            except Exception as e:
                wrong.append(e)

        with concurrent.futures.ThreadPoolExecutor(PARALLEL) as pool:
            list(pool.map(lambda box: forget(type(self).delete, box), boxes))
            list(pool.map(lambda image: forget(type(self).drop, image), images))
        self.settle()
        if wrong:
            raise wrong[0]

    def settle(self):
        """Waits for what the door does by itself after it has answered."""

    def keeps_memory(self):
        return False

    names = ()  # of processes behind the door, whoever they serve

    def marks(self):
        """What is in the command lines of the processes behind the door; those
        below them belong to it as well."""
        raise NotImplementedError


class Sandgate(Door):
    def __init__(self, path, ready="", count="0"):
        """ready is the folder in which count sandboxes are kept ready."""
        super().__init__(path)
        self.ready, self.count = ready, int(count)

    def again(self):
        return Sandgate(self.path)

    def data(self, method, path, body=None):
        answer = super().data(method, path, body)
        return answer.get("data") if answer else None

    def create(self, image=None):
        box = self.data("POST", "/sandbox", {"snapshot": image} if image else {})["sandboxId"]
        self.boxes.append(box)
        return box

    def output(self, box, command):
        made = self.data("POST", "/sandbox/%s/execute" % box, {"command": command})
        url = urllib.parse.urlsplit(made["stdoutStreamUrl"])
        output = self.api.call("GET", url.path + ("?" + url.query if url.query else ""))
        end = self.data("GET", "/sandbox/execution/%s?wait=60s" % made["executionId"])
        if end.get("exitCode") != 0:
            raise OSError("%s: %s" % (" ".join(command), end))
        return output

    def job(self, box, command):
        self.data("POST", "/sandbox/sandboxes/%s/jobs" % box, {"command": command})

    def jobs_running(self, box):
        return sum(j["status"] == "running" for j in self.data("GET", "/sandbox/sandboxes/%s/jobs" % box)["jobs"])

    def keeps_memory(self):
        return self.data("GET", "/v1/info")["engine"] == "gvisor"

    def marks(self):
        return [os.path.dirname(self.path)]

    def pause(self, box):
        self.data("POST", "/sandbox/%s/pause" % box)

    def resume(self, box):
        self.data("POST", "/sandbox/%s/resume" % box)

    def snapshot(self, box):
        image = self.data("POST", "/sandbox/%s/snapshot" % box, {})["snapshotId"]
        self.images.append(image)
        return image

    def fork(self, box):
        other = self.data("POST", "/v1/sandboxes/%s/fork" % box, {})["sandboxId"]
        self.boxes.append(other)
        return other

    def delete(self, box):
        self.data("DELETE", "/sandbox/%s" % box)

    def drop(self, image):
        self.data("DELETE", "/sandbox/snapshots/%s" % image)

    def settle(self):
        # The next sample finds them all ready, and no processor busy with
        # making one: each is there a little before it has booted.
        end = time.time() + 60
        while self.count and len(os.listdir(self.ready)) < self.count:
            if time.time() > end:
                raise TimeoutError("no %d sandboxes are ready in %s" % (self.count, self.ready))
            time.sleep(0.05)
        if self.count:
            time.sleep(1)


class Docker(Door):
    names = ("dockerd", "containerd")

    def __init__(self, image, label):
        super().__init__("/var/run/docker.sock")
        self.image, self.label = image, label

    def again(self):
        return Docker(self.image, self.label)

    def data(self, method, path, body=None):
        return super().data(method, "/v1.40" + path, body)

    def create(self, image=None):
        setting = {
            "Image": image or self.image, "Cmd": ["sleep", "infinity"], "HostConfig": {"NetworkMode": "none"}, "Labels": {self.label: ""},
            # The first process of a container does not heed SIGTERM unless it
            # says so, and stopping it would take ten seconds.
            "StopSignal": "SIGKILL",
        }
        box = self.data("POST", "/containers/create", setting)["Id"]
        self.boxes.append(box)
        self.resume(box)
        return box

    def output(self, box, command):
        made = self.data("POST", "/containers/%s/exec" % box, {"Cmd": command, "AttachStdout": True, "AttachStderr": True})
        stream = API(self.path)  # the engine takes the connection over
        try:
            frames = stream.call("POST", "/v1.40/exec/%s/start" % made["Id"], {"Detach": False, "Tty": False})
        finally:
            stream.http.close()
        output = b""
        while frames:  # each has a head: the stream, and how long it is
            end = 8 + struct.unpack(">I", frames[4:8])[0]
            output, frames = output + frames[8:end], frames[end:]
        code = self.data("GET", "/exec/%s/json" % made["Id"])["ExitCode"]
        if code != 0:
            raise OSError("%s: status %s, %r" % (" ".join(command), code, output[-200:]))
        return output

    def job(self, box, command):
        made = self.data("POST", "/containers/%s/exec" % box, {"Cmd": command})
        self.api.call("POST", "/v1.40/exec/%s/start" % made["Id"], {"Detach": True})

    def marks(self):
        return self.boxes or ["no container"]  # in the shim of each

    def pause(self, box):
        self.api.call("POST", "/v1.40/containers/%s/stop" % box)

    def resume(self, box):
        self.api.call("POST", "/v1.40/containers/%s/start" % box)

    def snapshot(self, box):
        image = self.data("POST", "/commit?container=%s" % box)["Id"]
        self.images.append(image)
        return image

    def fork(self, box):
        return self.create(self.snapshot(box))

    def delete(self, box):
        self.api.call("DELETE", "/v1.40/containers/%s?force=1&v=1" % box)

    def drop(self, image):
        self.api.call("DELETE", "/v1.40/images/%s" % image)


def door(spec):
    kind, *rest = spec
    return {"sandgate": Sandgate, "docker": Docker}[kind](*rest)
