"""BMC by Redfish, over HTTPS: sessions and their tokens by sushy, the rest by what the BMC's own resources say.

Firmwares differ. So a state is ``On`` or ``Off`` or unknown, sensors are read where they may be and left out where they
are not, and an order that a BMC refuses because the node is so already is no error.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sushy
from sushy import exceptions as redfish
from sushy.connector import Connector

from rmsplugin.adapters.power.base import PowerState
from rmsplugin.adapters.power.bmc import Sensors
from rmsplugin.adapters.power.credentials import read_credentials
from rmsplugin.errors import (
    ForbiddenError,
    OperationFailedError,
    RefusedError,
    RmspluginError,
    TimedOutError,
    UnavailableError,
)
from rmsplugin.settings.power import RedfishDriver

log = logging.getLogger(__name__)

T = TypeVar("T")

_STATES = {"On": PowerState.ON, "Off": PowerState.OFF}
#: A call is several requests: a session, and what is asked for. None of them can stretch it beyond this.
_REQUESTS = 4


class RedfishBmc:
    """Implements ``Bmc``. One call at a time: a BMC has few sessions, and a slow processor."""

    def __init__(self, node: str, driver: RedfishDriver) -> None:
        """Ask nobody, and read no file yet."""
        self._node = node
        self._driver = driver
        self._url = f"https://{driver.address_of(node)}"
        self._root: sushy.Sushy | None = None
        self._lock = threading.Lock()

    def state(self) -> PowerState:
        """See ``Bmc.state``."""
        return self._ask(lambda: _STATES.get(self._system().get("PowerState", ""), PowerState.UNKNOWN))

    def sensors(self) -> Sensors:
        """See ``Bmc.sensors``."""
        try:
            return self._ask(self._sensors)
        except RmspluginError as error:
            log.debug("%s", error)
            return Sensors()

    def shut_down(self) -> bool:
        """See ``Bmc.shut_down``."""
        if "GracefulShutdown" not in self._ask(self._resets):
            return False
        self._order("GracefulShutdown", PowerState.OFF)
        return True

    def cut(self) -> None:
        """See ``Bmc.cut``."""
        self._order("ForceOff", PowerState.OFF)

    def switch_on(self) -> None:
        """See ``Bmc.switch_on``."""
        self._order("On", PowerState.ON)

    # -- orders and questions ------------------------------------------------------------------------------------

    def _order(self, reset: str, wanted: PowerState) -> None:
        try:
            self._ask(lambda: self._reset(reset), order=True)
        except (RefusedError, OperationFailedError) as error:
            # Some say Conflict or Bad Request to an order for what is so already.
            if isinstance(error, ForbiddenError | TimedOutError) or self.state() is not wanted:
                raise

    def _reset(self, reset: str) -> None:
        action = self._system().get("Actions", {}).get("#ComputerSystem.Reset", {})
        self._connector().post(
            action.get("target", f"{self._path()}/Actions/ComputerSystem.Reset"), {"ResetType": reset}
        )

    def _resets(self) -> Sequence[str]:
        """The kinds of reset that the BMC has."""
        action = self._system().get("Actions", {}).get("#ComputerSystem.Reset", {})
        allowed = action.get("ResetType@Redfish.AllowableValues")
        if allowed is None and "@Redfish.ActionInfo" in action:
            parameters = self._get(action["@Redfish.ActionInfo"]).get("Parameters", ())
            allowed = [each for one in parameters for each in one.get("AllowableValues", ())]
        return allowed or ()

    def _sensors(self) -> Sensors:
        watts: float | None = None
        temperatures_c: dict[str, float] = {}
        for link in self._system().get("Links", {}).get("Chassis", ())[:1]:
            chassis = self._get(link["@odata.id"])
            metrics = self._linked(chassis, "EnvironmentMetrics")
            watts = _number(metrics.get("PowerWatts", {}).get("Reading"))
            for control in self._linked(chassis, "Power").get("PowerControl", ()):
                watts = _number(control.get("PowerConsumedWatts")) if watts is None else watts
            temperatures_c = dict(_temperatures(self._linked(chassis, "Thermal")))
            if not temperatures_c:
                inlet_c = _number(metrics.get("TemperatureCelsius", {}).get("Reading"))
                temperatures_c = {} if inlet_c is None else {"": inlet_c}
        wanted = [value for name, value in temperatures_c.items() if re.search(self._driver.temperature_sensors, name)]
        return Sensors(watts, max(wanted or temperatures_c.values(), default=None))

    # -- resources -----------------------------------------------------------------------------------------------

    def _system(self) -> Mapping[str, Any]:
        return self._get(self._path())

    def _path(self) -> str:
        if self._driver.system:
            return self._driver.system.replace("{node}", self._node)
        systems = self._get("/redfish/v1/Systems").get("Members", ())
        if len(systems) != 1:
            raise RefusedError(f"{self._url} has {len(systems)} systems: set `system` of [power.driver.NAME]")
        return str(systems[0]["@odata.id"])

    def _linked(self, resource: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """A resource that another one links; nothing where there is none."""
        if name not in resource:
            return {}
        try:
            return self._get(resource[name]["@odata.id"])
        except redfish.HTTPError:
            return {}

    def _get(self, path: str) -> Mapping[str, Any]:
        found: Any = self._connector().get(path).json()
        return found if isinstance(found, dict) else {}

    def _connector(self) -> Connector:
        if self._root is None:
            credentials = read_credentials(self._driver.credentials)
            verify = True if self._driver.ca is None else str(self._driver.ca)
            timeout_s = self._driver.timeout_s
            # One retry means one try: sushy takes 0 for its own default, three tries with pauses.
            connector = Connector(
                self._url,
                verify=verify,
                server_side_retries=1,
                default_request_timeout=timeout_s,
                connect_timeout=timeout_s,
            )
            connector._session.trust_env = False  # no proxy, and no other certificates, of our own environment
            self._root = sushy.Sushy(
                self._url, credentials.user, credentials.password, connector=connector, server_side_retries=1
            )
        return self._root._conn

    # -- bounds and errors ---------------------------------------------------------------------------------------

    def _ask(self, work: Callable[[], T], *, order: bool = False) -> T:
        """Do it within its bound: a BMC that sends a byte now and then would defeat the bounds of requests."""
        found: list[T] = []
        failed: list[Exception] = []

        def carry_out() -> None:
            try:
                found.append(work())
            except Exception as error:
                failed.append(error)

        bound_s = _REQUESTS * self._driver.timeout_s
        if not self._lock.acquire(timeout=bound_s):
            raise UnavailableError(f"the BMC of {self._node} is still busy with an earlier request")
        thread = threading.Thread(
            target=self._release_after, args=(carry_out,), name=f"BMC of {self._node}", daemon=True
        )
        thread.start()
        thread.join(bound_s)
        if thread.is_alive():
            raise TimedOutError(f"the BMC of {self._node} ({self._url}) did not end its answer within {bound_s:.0f} s")
        if failed:
            raise self._meaning(failed[0], order) from failed[0]
        return found[0]

    def _release_after(self, carry_out: Callable[[], None]) -> None:
        try:
            carry_out()
        finally:
            self._lock.release()

    def _meaning(self, error: Exception, order: bool) -> RmspluginError:
        who = f"the BMC of {self._node} ({self._url})"
        if isinstance(error, RmspluginError):
            return error
        if isinstance(error, redfish.AccessError):
            self._root = None  # the credentials may be others the next time
            return ForbiddenError(f"{who} does not take the credentials in {self._driver.credentials}")
        if isinstance(error, redfish.ConnectionError):
            return self._no_connection(error, who, order)
        if isinstance(error, redfish.ServerSideError):
            return UnavailableError(f"{who} cannot answer: {_line(error)}")
        if isinstance(error, redfish.HTTPError):
            return RefusedError(f"{who} refuses: {_line(error)}")
        if isinstance(error, redfish.SushyError | ValueError | KeyError | TypeError | AttributeError):
            return UnavailableError(f"{who} gives no answer of Redfish: {_line(error)}")
        if isinstance(error, OSError):
            return RefusedError(f"{who} cannot be asked: {_line(error)}")
        return OperationFailedError(f"{who}: {_line(error)}")

    def _no_connection(self, error: Exception, who: str, order: bool) -> RmspluginError:
        said = str(error)
        if "SSLError" in said or "CERTIFICATE_VERIFY_FAILED" in said or "certificate verify failed" in said:
            return RefusedError(f"{who} shows a certificate that is not believed: {_line(error)}")
        if order and "Read timed out" in said:
            return TimedOutError(f"{who} did not answer an order in time, and may carry it out")
        return UnavailableError(f"{who} does not answer: {_line(error)}")


def _temperatures(thermal: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Name and degrees Celsius of each sensor that is there, of a resource Thermal."""
    for sensor in thermal.get("Temperatures", ()):
        value = _number(sensor.get("ReadingCelsius"))
        if value is not None and sensor.get("Status", {}).get("State", "Enabled") == "Enabled":
            yield f"{sensor.get('Name', '')} {sensor.get('PhysicalContext', '')}", value


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
