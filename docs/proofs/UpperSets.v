(** The relaxed worst case is attained by an upper set of the radius (3.7): all tokens above some level of c, a fraction
    of those at the level, none below; and so by a scan over tokens sorted by radius with one fractional element.

    A fractional set is here a list of reals beside the list of tokens.  First the maximum over the cube exists, then a
    maximiser with U + V >= 1 is an upper set, and from any other point one may move to U + V >= 1 without loss. *)

From Coq Require Import Reals List Lra Lia Psatz Sorting.Sorted.
From Assay Require Import Sums Softmax Box.
Import ListNotations.
Open Scope R_scope.

(** All above the level [tau], the fraction [theta] at it, none below. *)
Definition level {I} (c : I -> R) (tau theta : R) (t : I) : R :=
  if Rlt_dec tau (c t) then 1 else if Req_EM_T (c t) tau then theta else 0.

(** * A Lipschitz function on a cube has a maximum *)

Definition incube (n : nat) (xs : list R) : Prop := length xs = n /\ forall x, In x xs -> 0 <= x <= 1.
Definition ldist (xs ys : list R) : R := Sum (combine xs ys) (fun z => Rabs (fst z - snd z)).

Lemma ldist_refl xs : ldist xs xs = 0.
Proof. induction xs as [|x xs IH]; unfold ldist in *; simpl; [reflexivity|]. rewrite IH, Rminus_eq_0, Rabs_R0. lra. Qed.

Lemma incube_cons n x xs : 0 <= x <= 1 -> incube n xs -> incube (S n) (x :: xs).
Proof. intros Hx [H1 H2]. split; [simpl; congruence|]. intros y [<-|Hy]; auto. Qed.

Lemma incube_inv n xs : incube (S n) xs -> exists x xs', xs = x :: xs' /\ 0 <= x <= 1 /\ incube n xs'.
Proof.
  intros [H1 H2]. destruct xs as [|x xs]; [discriminate|]. exists x, xs. split; [reflexivity|].
  split; [apply H2; now left|]. split; [simpl in H1; congruence|]. intros y Hy. apply H2. now right.
Qed.

Definition clamp (a : R) : R := Rmax 0 (Rmin a 1).

Lemma clamp_range a : 0 <= clamp a <= 1.
Proof. unfold clamp. split; [apply Rmax_l|]. apply Rmax_lub; [lra|apply Rmin_r]. Qed.

Lemma clamp_id a : 0 <= a <= 1 -> clamp a = a.
Proof. intros H. unfold clamp. rewrite Rmin_left by lra. apply Rmax_right. lra. Qed.

Lemma clamp_lip a b : Rabs (clamp a - clamp b) <= Rabs (a - b).
Proof.
  unfold clamp, Rmin. destruct (Rle_dec a 1), (Rle_dec b 1); unfold Rmax, Rabs;
    repeat match goal with |- context [if ?d then _ else _] => destruct d end; lra.
Qed.

Lemma cube_max (K : R) n : forall f : list R -> R, 0 <= K ->
  (forall xs ys, incube n xs -> incube n ys -> Rabs (f xs - f ys) <= K * ldist xs ys) ->
  exists xs, incube n xs /\ forall ys, incube n ys -> f ys <= f xs.
Proof.
  induction n as [|n IH]; intros f HK Hf.
  - exists []. split; [split; [reflexivity|easy]|]. intros ys [H _]. destruct ys; [lra|discriminate].
  - assert (Hmax : forall a, exists xs, incube n xs /\ forall ys, incube n ys -> f (clamp a :: ys) <= f (clamp a :: xs)).
    { intros a. apply (IH (fun xs => f (clamp a :: xs)) HK). intros xs ys Hx Hy.
      pose proof (Hf (clamp a :: xs) (clamp a :: ys) (incube_cons _ _ _ (clamp_range a) Hx)
        (incube_cons _ _ _ (clamp_range a) Hy)) as L.
      unfold ldist in L. simpl in L. rewrite Rminus_eq_0, Rabs_R0, Rplus_0_l in L. exact L. }
    set (M := fun a => Sup (fun v => exists xs, incube n xs /\ v = f (clamp a :: xs))).
    assert (HM : forall a, exists xs, incube n xs /\ M a = f (clamp a :: xs) /\
                 forall ys, incube n ys -> f (clamp a :: ys) <= M a).
    { intros a. destruct (Hmax a) as (xs & Hx & Hm). exists xs.
      assert (E : M a = f (clamp a :: xs)).
      { apply Rle_antisym.
        - apply (Sup_le _ _ (f (clamp a :: xs))); [now exists xs|]. intros w (ys & Hy & ->). now apply Hm.
        - apply (Sup_ub _ (f (clamp a :: xs))); [|now exists xs]. intros w (ys & Hy & ->). now apply Hm. }
      split; [assumption|]. split; [assumption|]. rewrite E. exact Hm. }
    assert (HL1 : forall a b, M a <= M b + K * Rabs (a - b)).
    { intros a b. destruct (HM a) as (xs & Hx & Ea & _). destruct (HM b) as (_ & _ & _ & Hb). rewrite Ea.
      specialize (Hb xs Hx).
      pose proof (Hf (clamp a :: xs) (clamp b :: xs) (incube_cons _ _ _ (clamp_range a) Hx)
        (incube_cons _ _ _ (clamp_range b) Hx)) as L.
      unfold ldist in L. simpl in L. fold (ldist xs xs) in L. rewrite ldist_refl, Rplus_0_r in L.
      pose proof (clamp_lip a b) as C. pose proof (Rle_abs (f (clamp a :: xs) - f (clamp b :: xs))).
      assert (K * Rabs (clamp a - clamp b) <= K * Rabs (a - b)) by (apply Rmult_le_compat_l; assumption). lra. }
    destruct (continuity_ab_maj M 0 1 Rle_0_1) as (a & Ha & Ha01).
    + intros a _. intros eps Heps. exists (eps / (K + 1)). split; [apply Rdiv_lt_0_compat; lra|].
      intros b [_ Hb]. simpl in *. unfold R_dist in *.
      pose proof (HL1 a b) as L1. pose proof (HL1 b a) as L2. rewrite (Rabs_minus_sym a b) in L1.
      assert (Hb' : (K + 1) * Rabs (b - a) < eps).
      { apply Rmult_lt_compat_l with (r := K + 1) in Hb; [|lra]. replace ((K + 1) * (eps / (K + 1))) with eps in Hb by (field; lra).
        exact Hb. }
      pose proof (Rabs_pos (b - a)). assert (K * Rabs (b - a) < eps) by nra.
      apply Rabs_def1; lra.
    + destruct (HM a) as (xs & Hx & Ea & _). exists (clamp a :: xs). split; [apply incube_cons; [apply clamp_range|assumption]|].
      intros ys Hy. destruct (incube_inv n ys Hy) as (b & ys' & -> & Hb & Hy').
      destruct (HM b) as (_ & _ & _ & Hb'). specialize (Hb' ys' Hy'). rewrite (clamp_id b Hb) in Hb'.
      specialize (Ha b Hb). lra.
Qed.

(** * Sums beside a list of reals *)

Section Upper.
Context {I : Type}.
Implicit Types (l : list I) (w ph c x : I -> R) (xs : list R).

Definition lin l xs w : R := Sum (combine l xs) (fun z => snd z * w (fst z)).

Lemma lin_map l x w : lin l (map x l) w = Sum l (fun t => x t * w t).
Proof. unfold lin. induction l as [|a l IH]; simpl; [reflexivity|]. now rewrite IH. Qed.

Lemma lin_lip l w K xs ys :
  0 <= K -> (forall t, In t l -> Rabs (w t) <= K) -> length xs = length l -> length ys = length l ->
  Rabs (lin l xs w - lin l ys w) <= K * ldist xs ys.
Proof.
  intros HK. revert xs ys. induction l as [|a l IH]; intros xs ys Hw H1 H2; destruct xs as [|x xs], ys as [|y ys]; try discriminate.
  - unfold lin, ldist. simpl. rewrite Rminus_0_r, Rabs_R0. lra.
  - unfold lin, ldist. simpl. fold (lin l xs w) (lin l ys w) (ldist xs ys).
    specialize (IH xs ys (fun t Ht => Hw t (or_intror Ht)) ltac:(simpl in *; lia) ltac:(simpl in *; lia)).
    replace (x * w a + lin l xs w - (y * w a + lin l ys w)) with ((x - y) * w a + (lin l xs w - lin l ys w)) by ring.
    apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_mult.
    specialize (Hw a (or_introl eq_refl)). pose proof (Rabs_pos (x - y)).
    assert (Rabs (x - y) * Rabs (w a) <= Rabs (x - y) * K) by (apply Rmult_le_compat_l; assumption). lra.
Qed.

(** One coordinate changed. *)
Lemma perturb l xs t (x x' : R) :
  incube (length l) xs -> In (t, x) (combine l xs) -> 0 <= x' <= 1 ->
  exists xs', incube (length l) xs' /\ forall w, lin l xs' w = lin l xs w + (x' - x) * w t.
Proof.
  revert xs. induction l as [|a l IH]; intros xs Hc Hi Hx; [easy|].
  destruct (incube_inv _ _ Hc) as (y & ys & -> & Hy & Hys). destruct Hi as [E|Hi].
  - inversion E; subst. exists (x' :: ys). split; [now apply incube_cons|]. intros w. unfold lin. simpl. ring.
  - destruct (IH ys Hys Hi Hx) as (ys' & Hc' & Hw). exists (y :: ys'). split; [now apply incube_cons|].
    intros w. unfold lin in *. simpl. rewrite Hw. ring.
Qed.

(** All coordinates changed by a rule. *)
Lemma transform l xs (g : I * R -> R) :
  length xs = length l ->
  (forall w, lin l (map g (combine l xs)) w = Sum (combine l xs) (fun z => g z * w (fst z))) /\
  ((forall z, In z (combine l xs) -> 0 <= g z <= 1) -> incube (length l) (map g (combine l xs))).
Proof.
  intros H. split.
  - intros w. unfold lin. revert xs H. induction l as [|a l IH]; intros xs H; destruct xs as [|x xs]; try discriminate; [reflexivity|].
    simpl. rewrite IH by (simpl in H; lia). reflexivity.
  - intros Hg. split; [rewrite map_length, combine_length; lia|]. intros y Hy. apply in_map_iff in Hy.
    destruct Hy as (z & <- & Hz). now apply Hg.
Qed.

Lemma Sum_fst l xs w : length xs = length l -> Sum (combine l xs) (fun z => w (fst z)) = Sum l w.
Proof.
  revert xs. induction l as [|a l IH]; intros xs H; destruct xs as [|x xs]; try discriminate; [reflexivity|].
  simpl. rewrite IH by (simpl in H; lia). reflexivity.
Qed.

Lemma in_combine l xs z : incube (length l) xs -> In z (combine l xs) -> In (fst z) l /\ 0 <= snd z <= 1.
Proof.
  intros [_ H] Hz. destruct z as [t x]. split; [now apply in_combine_l in Hz|]. apply H. now apply in_combine_r in Hz.
Qed.

End Upper.

(** * Moving to U + V >= 1 *)

(** [n], [V], [x]: mass, V and harmonic level of the complement; [l], [UL], [VL] and [eta], [UH]: the parts of the set at
    levels up to x and above.  The new set is the upper part with the fraction [theta] of the complement. *)
Lemma move_up l eta n UL VL UH V NU z :
  0 <= l -> 0 <= eta -> 0 < n -> l + eta + n = 1 -> 0 < V -> V <= n -> z = UL + UH + V -> 0 < z -> z < 1 ->
  n * (UL + UH + V) >= V ->
  l^2 <= UL * VL -> 0 <= VL -> 0 <= UL -> VL <= UL -> eta <= UH -> n^2 <= NU * V ->
  UL <= l * (n / V) -> eta * (n / V) <= UH -> VL * (n / V) <= l * (1 + n / V) - UL ->
  exists theta, 0 <= theta <= 1 /\
    (let U' := UH + theta * NU in let V' := VL + (1 - theta) * V in
     1 <= U' + V' /\ n - V / z <= U' / (U' + V') - (eta + theta * n)).
Proof.
  intros Hl He Hn H1 HV HVn Hz Hz0 Hz1 Hf HCS HVL HUL HVLU HeU HJ B1 B2 B3.
  set (x := n / V) in *.
  assert (ExV : V = n / x) by (unfold x; field; lra).
  assert (Hx0 : 0 < x) by (apply Rdiv_lt_0_compat; assumption).
  assert (Hxz : 1 <= x * z).
  { unfold x. apply Rmult_le_reg_r with V; [assumption|]. replace (n / V * z * V) with (n * z) by (field; lra). rewrite Hz. lra. }
  assert (Hx : 1 < x) by nra.
  assert (HNU : n * x <= NU).
  { apply Rmult_le_reg_r with V; [assumption|]. replace (n * x * V) with (n^2) by (unfold x; field; lra). exact HJ. }
  set (Z0 := UH + VL + V). set (Z1 := UH + VL + n * x).
  assert (HZ0 : Z0 <= z) by (unfold Z0; lra).
  assert (HVx : V * x = n) by (unfold x; field; lra).
  assert (HZ1 : 1 <= z * Z1).
  { (* Cauchy-Schwarz in three terms *)
    assert (K1 : 2 * l * UH <= (UL + VL) * UH).
    { assert (2 * l <= UL + VL).
      { assert ((2 * l)^2 <= (UL + VL)^2) by (pose proof (pow2_ge_0 (UL - VL)); nra).
        apply Rsqr_incr_0_var; [|lra]. unfold Rsqr. lra. }
      apply Rmult_le_compat_r; lra. }
    assert (K2 : 2 * n * UH <= (V + n * x) * UH).
    { assert (2 * n <= V + n * x).
      { assert (V * (V + n * x - 2 * n) = (V - n)^2) by (replace (V * (V + n * x - 2 * n)) with (V^2 + n * (V * x) - 2 * n * V) by ring; rewrite HVx; ring).
        pose proof (pow2_ge_0 (V - n)).
        assert (0 <= V + n * x - 2 * n) by (apply Rmult_le_reg_l with V; [assumption|]; lra). lra. }
      apply Rmult_le_compat_r; lra. }
    assert (K3 : 2 * l * n <= UL * (n * x) + VL * V).
    { assert (Hs : (2 * l * n)^2 <= (UL * (n * x) + VL * V)^2).
      { assert (4 * (l^2 * n^2) <= 4 * ((UL * (n * x)) * (VL * V))).
        { replace ((UL * (n * x)) * (VL * V)) with ((UL * VL) * (n * (V * x))) by ring. rewrite HVx.
          assert (0 <= n * n) by nra. nra. }
        pose proof (pow2_ge_0 (UL * (n * x) - VL * V)). nra. }
      assert (0 <= UL * (n * x) + VL * V).
      { apply Rplus_le_le_0_compat; [apply Rmult_le_pos; [lra|apply Rmult_le_pos; lra]|apply Rmult_le_pos; lra]. }
      apply Rsqr_incr_0_var; [|assumption]. unfold Rsqr. lra. }
    assert (K4 : V * (n * x) = n^2) by (replace (V * (n * x)) with (n * (V * x)) by ring; rewrite HVx; ring).
    assert (K5 : (l + UH + n)^2 <= z * Z1).
    { rewrite Hz. unfold Z1.
      replace ((UL + UH + V) * (UH + VL + n * x)) with
        (UL * VL + (UL + VL) * UH + UH^2 + (V + n * x) * UH + (UL * (n * x) + VL * V) + V * (n * x)) by ring.
      rewrite K4. replace ((l + UH + n)^2) with (l^2 + 2 * l * UH + UH^2 + 2 * n * UH + 2 * l * n + n^2) by ring. lra. }
    assert (1 <= (l + UH + n)^2) by (replace 1 with (1^2) at 1 by ring; apply pow_incr; lra). lra. }
  assert (HZ01 : Z0 < 1 / z).
  { apply Rle_lt_trans with (1 := HZ0). apply Rmult_lt_reg_r with z; [assumption|]. field_simplify; nra. }
  assert (HZ1' : 1 / z <= Z1).
  { apply Rmult_le_reg_r with z; [assumption|]. replace (1 / z * z) with 1 by (field; lra). lra. }
  set (theta := (1 / z - Z0) / (Z1 - Z0)).
  assert (Hth : 0 <= theta <= 1).
  { unfold theta. split.
    - apply Rlt_le, Rdiv_lt_0_compat; lra.
    - apply Rmult_le_reg_r with (Z1 - Z0); [lra|]. unfold Rdiv at 1. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  exists theta. split; [assumption|]. cbv zeta.
  set (U0 := UH + theta * (n * x)). set (V' := VL + (1 - theta) * V).
  assert (EZ : U0 + V' = 1 / z).
  { unfold U0, V'. transitivity (Z0 + theta * (Z1 - Z0)); [unfold Z0, Z1; ring|]. unfold theta. field. split; lra. }
  assert (Hz1' : 1 < 1 / z) by (apply Rmult_lt_reg_r with z; [assumption|]; field_simplify; lra).
  assert (HV' : 0 <= V') by (unfold V'; apply Rplus_le_le_0_compat; [assumption|apply Rmult_le_pos; lra]).
  assert (HU0 : 0 <= U0).
  { unfold U0. apply Rplus_le_le_0_compat; [lra|]. apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; lra. }
  assert (HU : U0 <= UH + theta * NU) by (unfold U0; apply Rplus_le_compat_l, Rmult_le_compat_l; lra).
  split; [lra|].
  apply Rle_trans with (U0 / (U0 + V') - (eta + theta * n)).
  2: { apply Rplus_le_compat_r. apply share_mono; lra. }
  rewrite EZ. replace (U0 / (1 / z)) with (z * U0) by (field; lra).
  assert (Px : 0 < x^2 - 1) by (replace (x^2 - 1) with ((x - 1) * (x + 1)) by ring; apply Rmult_lt_0_compat; lra).
  assert (Pz : 0 <= 1 - z^2) by (replace (1 - z^2) with ((1 - z) * (1 + z)) by ring; apply Rmult_le_pos; lra).
  (* theta n (x - 1/x) = 1/z - Z0 *)
  assert (Eth : theta * n = (1 / z - Z0) * x / (x^2 - 1)).
  { unfold theta. replace (Z1 - Z0) with (n * (x^2 - 1) / x) by (unfold Z1, Z0; rewrite ExV; field; lra).
    field. repeat split; lra. }
  assert (HVLb : VL <= (l * (1 + x) - UL) / x).
  { apply Rmult_le_reg_r with x; [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (El : l = 1 - eta - n) by lra. assert (EUL : UL = z - UH - n / x) by (rewrite Hz, ExV at 1; lra).
  apply Rle_trans with (z * UH - eta + (x * z - 1) * ((1 / z - UH - (l * (1 + x) - UL) / x - n / x) * x / (x^2 - 1))).
  - assert (Id : z * UH - eta + (x * z - 1) * ((1 / z - UH - (l * (1 + x) - UL) / x - n / x) * x / (x^2 - 1)) - (n - V / z)
      = (x * z - 1) * (1 - z) * (l * x - UL) / (z * (x^2 - 1)) + (1 - z^2) * (UH - eta * x) / (z * (x^2 - 1))).
    { rewrite ExV, El, EUL. field. repeat split; lra. }
    assert (P : 0 < z * (x^2 - 1)) by (apply Rmult_lt_0_compat; assumption).
    assert (0 <= (x * z - 1) * (1 - z) * (l * x - UL) / (z * (x^2 - 1))).
    { apply Rmult_le_pos; [|left; now apply Rinv_0_lt_compat]. apply Rmult_le_pos; [apply Rmult_le_pos|]; lra. }
    assert (0 <= (1 - z^2) * (UH - eta * x) / (z * (x^2 - 1))).
    { apply Rmult_le_pos; [|left; now apply Rinv_0_lt_compat]. apply Rmult_le_pos; lra. }
    lra.
  - replace (z * U0 - (eta + theta * n)) with (z * UH - eta + (x * z - 1) * (theta * n)) by (unfold U0; ring).
    apply Rplus_le_compat_l, Rmult_le_compat_l; [lra|]. rewrite Eth. unfold Rdiv. rewrite !Rmult_assoc.
    apply Rmult_le_compat_r.
    + apply Rmult_le_pos; [lra|]. left. now apply Rinv_0_lt_compat.
    + unfold Z0. rewrite ExV. unfold Rdiv in *. lra.
Qed.

(** * A maximiser *)

Section Max.
Context {I : Type}.
Variables (l : list I) (ph c : I -> R).
Hypothesis Hw : weights l ph.
Hypothesis Hc : forall t, In t l -> 0 <= c t.

Definition lU (xs : list R) : R := lin l xs (fun t => ph t * exp (c t)).
Definition lV (xs : list R) : R := Sum l (fun t => ph t * exp (- c t)) - lin l xs (fun t => ph t * exp (- c t)).
Definition lP (xs : list R) : R := lin l xs ph.
Definition lval (xs : list R) : R := lU xs / (lU xs + lV xs) - lP xs.

Lemma fval_lval x : fval l ph c x = lval (map x l).
Proof.
  unfold fval, lval, lU, lV, lP. rewrite !lin_map. rewrite <- Sum_minus.
  replace (Sum l (fun t => x t * (ph t * exp (c t)))) with (fU l ph c x) by (apply Sum_ext; intros; ring).
  replace (Sum l (fun t => ph t * exp (- c t) - x t * (ph t * exp (- c t)))) with (fV l ph c x)
    by (apply Sum_ext; intros; ring).
  reflexivity.
Qed.

Lemma map_incube x : frac l x -> incube (length l) (map x l).
Proof.
  intros H. split; [apply map_length|]. intros y Hy. apply in_map_iff in Hy. destruct Hy as (t & <- & Ht). now apply H.
Qed.

Lemma item z xs : incube (length l) xs -> In z (combine l xs) ->
  In (fst z) l /\ 0 <= snd z <= 1 /\ 0 <= ph (fst z) /\ 1 <= exp (c (fst z)) /\
  0 < exp (- c (fst z)) /\ exp (- c (fst z)) * exp (c (fst z)) = 1 /\ exp (- c (fst z)) <= 1.
Proof.
  intros Hx Hz. destruct (in_combine l xs z Hx Hz) as [Ht Hs]. destruct Hw as [Hp _].
  pose proof (exp_ineq1_le (c (fst z))). specialize (Hc _ Ht). pose proof (exp_pos (- c (fst z))).
  assert (E : exp (- c (fst z)) * exp (c (fst z)) = 1) by (rewrite <- exp_plus, Rplus_opp_l; apply exp_0).
  repeat split; try tauto; try lra; [now apply Hp|nra].
Qed.

Lemma lV_K xs : incube (length l) xs -> lV xs = Sum (combine l xs) (fun z => (1 - snd z) * ph (fst z) * exp (- c (fst z))).
Proof.
  intros [Hl _]. unfold lV, lin. rewrite <- (Sum_fst l xs (fun t => ph t * exp (- c t)) Hl), <- Sum_minus.
  apply Sum_ext. intros; ring.
Qed.

Lemma lU_nonneg xs : incube (length l) xs -> 0 <= lU xs.
Proof.
  intros Hx. apply Sum_nonneg. intros z Hz. destruct (item z xs Hx Hz) as (_ & H1 & H2 & H3 & _).
  apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; lra.
Qed.

Lemma lV_nonneg xs : incube (length l) xs -> 0 <= lV xs.
Proof.
  intros Hx. rewrite lV_K by assumption. apply Sum_nonneg. intros z Hz.
  destruct (item z xs Hx Hz) as (_ & H1 & H2 & _ & H4 & _). repeat apply Rmult_le_pos; lra.
Qed.

Lemma lZ_lower xs : incube (length l) xs -> Aminus l ph c <= lU xs + lV xs.
Proof.
  intros Hx. rewrite lV_K by assumption. unfold lU, lin, Aminus.
  rewrite <- (Sum_fst l xs (fun t => ph t * exp (- c t)) (proj1 Hx)), <- Sum_plus.
  apply Sum_le. intros z Hz. destruct (item z xs Hx Hz) as (_ & H1 & H2 & H3 & H4 & _ & H6).
  assert (0 <= snd z * ph (fst z)) by (apply Rmult_le_pos; lra).
  assert (snd z * ph (fst z) * exp (- c (fst z)) <= snd z * ph (fst z) * exp (c (fst z))) by (apply Rmult_le_compat_l; lra).
  lra.
Qed.

Lemma Am_pos : 0 < Aminus l ph c.
Proof. apply weights_pos; [assumption|]. intros; apply exp_pos. Qed.

Lemma ratio_lip U V U' V' m : 0 < m -> 0 <= U -> 0 <= V -> m <= U + V -> m <= U' + V' ->
  Rabs (U / (U + V) - U' / (U' + V')) <= (Rabs (U - U') + Rabs (V - V')) / m.
Proof.
  intros Hm HU HV H1 H2.
  replace (U / (U + V) - U' / (U' + V')) with ((V * (U - U') - U * (V - V')) / (U + V) * / (U' + V')) by (field; lra).
  rewrite Rabs_mult, (Rabs_pos_eq (/ (U' + V'))) by (left; apply Rinv_0_lt_compat; lra).
  apply Rmult_le_compat; [apply Rabs_pos|left; apply Rinv_0_lt_compat; lra| |apply Rinv_le_contravar; lra].
  unfold Rdiv. rewrite Rabs_mult, (Rabs_pos_eq (/ (U + V))) by (left; apply Rinv_0_lt_compat; lra).
  apply Rmult_le_reg_r with (U + V); [lra|]. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  pose proof (Rabs_triang (V * (U - U')) (- (U * (V - V')))) as T.
  rewrite Rabs_Ropp, !Rabs_mult, (Rabs_pos_eq U), (Rabs_pos_eq V) in T by assumption.
  pose proof (Rabs_pos (U - U')). pose proof (Rabs_pos (V - V')).
  replace (V * (U - U') - U * (V - V')) with (V * (U - U') + - (U * (V - V'))) by ring. nra.
Qed.

Definition maximal (xs : list R) : Prop := incube (length l) xs /\ forall ys, incube (length l) ys -> lval ys <= lval xs.

Lemma maximiser : exists xs, maximal xs.
Proof.
  destruct (list_bound l c) as [C HC]. set (E := exp (Rmax 0 C)).
  assert (HE : 1 <= E) by (unfold E; pose proof (exp_ineq1_le (Rmax 0 C)); pose proof (Rmax_l 0 C); lra).
  assert (Hp1 : forall t, In t l -> 0 <= ph t <= 1).
  { intros t Ht. destruct Hw as [Hp H1]. split; [now apply Hp|]. rewrite <- H1. now apply Sum_ge_one. }
  assert (HU : forall t, In t l -> Rabs (ph t * exp (c t)) <= E).
  { intros t Ht. specialize (Hp1 t Ht). pose proof (exp_pos (c t)). rewrite Rabs_pos_eq by (apply Rmult_le_pos; lra).
    assert (exp (c t) <= E).
    { unfold E. specialize (HC t Ht). pose proof (Rmax_r 0 C).
      destruct (Req_dec (c t) (Rmax 0 C)) as [->|]; [lra|left; apply exp_increasing; lra]. }
    nra. }
  assert (HV : forall t, In t l -> Rabs (ph t * exp (- c t)) <= E).
  { intros t Ht. specialize (Hp1 t Ht). specialize (Hc t Ht). pose proof (exp_pos (- c t)).
    rewrite Rabs_pos_eq by (apply Rmult_le_pos; lra).
    assert (exp (- c t) <= 1).
    { rewrite <- exp_0. destruct Hc as [H0|H0]; [left; apply exp_increasing; lra|rewrite <- H0, Ropp_0; lra]. }
    nra. }
  assert (HP : forall t, In t l -> Rabs (ph t) <= E).
  { intros t Ht. specialize (Hp1 t Ht). rewrite Rabs_pos_eq; lra. }
  pose proof Am_pos as Hm. set (m := Aminus l ph c) in *.
  assert (HK0 : 0 <= (E + E) / m) by (apply Rmult_le_pos; [lra|left; now apply Rinv_0_lt_compat]).
  destruct (cube_max ((E + E) / m + E) (length l) lval) as (xs & Hx & Hmax).
  - lra.
  - intros xs ys Hx Hy. unfold lval.
    replace (lU xs / (lU xs + lV xs) - lP xs - (lU ys / (lU ys + lV ys) - lP ys))
      with ((lU xs / (lU xs + lV xs) - lU ys / (lU ys + lV ys)) + - (lP xs - lP ys)) by ring.
    apply Rle_trans with (1 := Rabs_triang _ _). rewrite Rabs_Ropp.
    pose proof (ratio_lip (lU xs) (lV xs) (lU ys) (lV ys) m Hm (lU_nonneg xs Hx) (lV_nonneg xs Hx)
      (lZ_lower xs Hx) (lZ_lower ys Hy)) as R.
    pose proof (lin_lip l _ E xs ys ltac:(lra) HU (proj1 Hx) (proj1 Hy)) as L1.
    pose proof (lin_lip l _ E xs ys ltac:(lra) HV (proj1 Hx) (proj1 Hy)) as L2.
    pose proof (lin_lip l _ E xs ys ltac:(lra) HP (proj1 Hx) (proj1 Hy)) as L3.
    fold (lU xs) (lU ys) in L1. fold (lP xs) (lP ys) in L3.
    assert (L2' : Rabs (lV xs - lV ys) <= E * ldist xs ys).
    { unfold lV. match goal with |- Rabs (?s - ?a - (?s - ?b)) <= _ => replace (s - a - (s - b)) with (- (a - b)) by ring end.
      now rewrite Rabs_Ropp. }
    apply Rle_trans with ((E * ldist xs ys + E * ldist xs ys) / m + E * ldist xs ys).
    + apply Rplus_le_compat; [|assumption]. apply Rle_trans with (1 := R).
      apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat|lra].
    + apply Req_le. field. lra.
  - exists xs. split; assumption.
Qed.

(** ** What holds at a maximiser, token by token *)

Definition lD xs t : R := lV xs * exp (c t) + lU xs * exp (- c t) - (lU xs + lV xs)^2.

Lemma first_order xs t x x' :
  maximal xs -> In (t, x) (combine l xs) -> 0 < ph t -> 0 <= x' <= 1 ->
  (x' - x) * lD xs t <= (x' - x)^2 * ((lU xs + lV xs) * ph t * (exp (c t) - exp (- c t))).
Proof.
  intros [Hx Hmax] Hi Hp Hx'. destruct (perturb l xs t x x' Hx Hi Hx') as (ys & Hy & Hlin).
  specialize (Hmax ys Hy). pose proof (lZ_lower xs Hx) as Z1. pose proof (lZ_lower ys Hy) as Z2. pose proof Am_pos as Hm.
  set (d := x' - x) in *. set (u := exp (c t)) in *. set (v := exp (- c t)) in *.
  assert (EU : lU ys = lU xs + d * (ph t * u)) by apply Hlin.
  assert (EV : lV ys = lV xs - d * (ph t * v)).
  { unfold lV. rewrite Hlin. unfold v. ring. }
  assert (EP : lP ys = lP xs + d * ph t) by apply Hlin.
  unfold lval in Hmax. rewrite EP in Hmax. unfold lD. fold u v.
  set (U := lU xs) in *. set (V := lV xs) in *. set (Z := U + V) in *.
  set (Z' := lU ys + lV ys) in *. 
  assert (EZ : Z' = Z + d * (ph t * (u - v))) by (unfold Z', Z; rewrite EU, EV; ring).
  assert (K : lU ys / Z' - U / Z <= d * ph t) by lra. rewrite EU in K.
  apply Rmult_le_compat_r with (r := Z * Z') in K; [|apply Rlt_le, Rmult_lt_0_compat; lra].
  replace (((U + d * (ph t * u)) / Z' - U / Z) * (Z * Z')) with ((U + d * (ph t * u)) * Z - U * Z') in K by (field; lra).
  rewrite EZ in K.
  apply Rmult_le_reg_l with (ph t); [assumption|]. unfold Z in K |- *. nra.
Qed.

Lemma at_max_in xs t x : maximal xs -> In (t, x) (combine l xs) -> 0 < ph t -> 0 < lD xs t -> x = 1.
Proof.
  intros Hm Hi Hp HD. destruct (item _ xs (proj1 Hm) Hi) as (_ & Hx & _ & Hu & _ & _ & Hv). simpl in *.
  destruct (Rle_lt_or_eq_dec x 1 (proj2 Hx)) as [L|]; [exfalso|assumption].
  set (g := (lU xs + lV xs) * ph t * (exp (c t) - exp (- c t))).
  assert (Hg : 0 <= g).
  { pose proof (lU_nonneg xs (proj1 Hm)). pose proof (lV_nonneg xs (proj1 Hm)). unfold g.
    apply Rmult_le_pos; [apply Rmult_le_pos; lra|lra]. }
  set (d := Rmin (1 - x) (lD xs t / (2 * (g + 1)))).
  assert (Hd0 : 0 < d).
  { unfold d. apply Rmin_glb_lt; [lra|]. apply Rdiv_lt_0_compat; lra. }
  assert (Hd1 : d <= 1 - x) by apply Rmin_l.
  assert (Hd2 : d * (2 * (g + 1)) <= lD xs t).
  { apply Rle_trans with (lD xs t / (2 * (g + 1)) * (2 * (g + 1))); [|apply Req_le; field; lra].
    apply Rmult_le_compat_r; [lra|apply Rmin_r]. }
  pose proof (first_order xs t x (x + d) Hm Hi Hp ltac:(lra)) as K. fold g in K.
  replace (x + d - x) with d in K by ring.
  assert (lD xs t <= d * g) by (apply Rmult_le_reg_l with d; [assumption|]; simpl in K; lra). nra.
Qed.

Lemma at_max_out xs t x : maximal xs -> In (t, x) (combine l xs) -> 0 < ph t -> lD xs t < 0 -> x = 0.
Proof.
  intros Hm Hi Hp HD. destruct (item _ xs (proj1 Hm) Hi) as (_ & Hx & _ & Hu & _ & _ & Hv). simpl in *.
  destruct (Rle_lt_or_eq_dec 0 x (proj1 Hx)) as [L|]; [exfalso|auto].
  set (g := (lU xs + lV xs) * ph t * (exp (c t) - exp (- c t))).
  assert (Hg : 0 <= g).
  { pose proof (lU_nonneg xs (proj1 Hm)). pose proof (lV_nonneg xs (proj1 Hm)). unfold g.
    apply Rmult_le_pos; [apply Rmult_le_pos; lra|lra]. }
  set (d := Rmin x (- lD xs t / (2 * (g + 1)))).
  assert (Hd0 : 0 < d).
  { unfold d. apply Rmin_glb_lt; [lra|]. apply Rdiv_lt_0_compat; lra. }
  assert (Hd1 : d <= x) by apply Rmin_l.
  assert (Hd2 : d * (2 * (g + 1)) <= - lD xs t).
  { apply Rle_trans with (- lD xs t / (2 * (g + 1)) * (2 * (g + 1))); [|apply Req_le; field; lra].
    apply Rmult_le_compat_r; [lra|apply Rmin_r]. }
  pose proof (first_order xs t x (x - d) Hm Hi Hp ltac:(lra)) as K. fold g in K.
  replace (x - d - x) with (- d) in K by ring.
  assert (- lD xs t <= d * g) by (apply Rmult_le_reg_l with d; [assumption|]; simpl in K; lra). nra.
Qed.

(** ** With U + V >= 1 a maximiser is an upper set *)

(** The lowest level that the set uses. *)
Lemma lowest (Q : I * R -> Prop) (K : list (I * R)) :
  (forall z, {Q z} + {~ Q z}) ->
  (forall z, In z K -> ~ Q z) \/ exists z, In z K /\ Q z /\ forall y, In y K -> Q y -> c (fst z) <= c (fst y).
Proof.
  intros dec. induction K as [|a K IH]; [left; easy|].
  destruct IH as [IH|(z & Hz & Qz & Hmin)].
  - destruct (dec a) as [Qa|Na].
    + right. exists a. split; [now left|]. split; [assumption|]. intros y [<-|Hy] Qy; [lra|]. now destruct (IH y Hy).
    + left. intros z [<-|Hz]; auto.
  - right. destruct (dec a) as [Qa|Na].
    + destruct (Rle_lt_dec (c (fst z)) (c (fst a))) as [L|L].
      * exists z. split; [now right|]. split; [assumption|]. intros y [<-|Hy] Qy; auto.
      * exists a. split; [now left|]. split; [assumption|]. intros y [<-|Hy] Qy; [lra|].
        apply Rle_trans with (c (fst z)); [lra|now apply Hmin].
    + exists z. split; [now right|]. split; [assumption|]. intros y [<-|Hy] Qy; [contradiction|auto].
Qed.

(** A level set that uses nothing, and its value. *)
Lemma empty_level : exists tau, forall t, In t l -> level c tau 0 t = 0.
Proof.
  destruct (list_bound l c) as [C HC]. exists C. intros t Ht. unfold level. specialize (HC t Ht).
  destruct (Rlt_dec C (c t)); [lra|]. now destruct (Req_EM_T (c t) C).
Qed.

Lemma fval_empty x : (forall t, In t l -> x t = 0) -> fval l ph c x = 0.
Proof.
  intros H. unfold fval, fU, fP. rewrite (Sum_0 l (fun t => x t * ph t * exp (c t))).
  - rewrite (Sum_0 l (fun t => x t * ph t)); [unfold Rdiv; ring|]. intros t Ht. rewrite H by assumption. ring.
  - intros t Ht. rewrite H by assumption. ring.
Qed.

(** The same sums, from the level form. *)
Lemma level_sums xs tau theta :
  incube (length l) xs ->
  (forall z, In z (combine l xs) -> 0 < ph (fst z) -> tau < c (fst z) -> snd z = 1) ->
  (forall z, In z (combine l xs) -> 0 < ph (fst z) -> c (fst z) < tau -> snd z = 0) ->
  theta * Sum l (fun t => if Req_EM_T (c t) tau then ph t else 0)
    = Sum (combine l xs) (fun z => if Req_EM_T (c (fst z)) tau then snd z * ph (fst z) else 0) ->
  forall g : R -> R, lin l xs (fun t => ph t * g (c t)) = Sum l (fun t => level c tau theta t * (ph t * g (c t))).
Proof.
  intros Hx Hin Hout Hth g.
  rewrite <- (Sum_fst l xs (fun t => level c tau theta t * (ph t * g (c t))) (proj1 Hx)).
  assert (E1 : lin l xs (fun t => ph t * g (c t))
    = Sum (combine l xs) (fun z => if Rlt_dec tau (c (fst z)) then ph (fst z) * g (c (fst z)) else 0)
    + g tau * Sum (combine l xs) (fun z => if Req_EM_T (c (fst z)) tau then snd z * ph (fst z) else 0)).
  { rewrite <- Sum_scal, <- Sum_plus. unfold lin. apply Sum_ext. intros z Hz.
    destruct (item z xs Hx Hz) as (_ & _ & Hp & _).
    destruct (Rlt_dec tau (c (fst z))) as [L|L]; destruct (Req_EM_T (c (fst z)) tau) as [Q|Q]; try lra.
    - destruct (Req_dec (ph (fst z)) 0) as [E0|E0]; [rewrite E0; ring|]. rewrite (Hin z Hz) by lra. ring.
    - rewrite Q. ring.
    - destruct (Req_dec (ph (fst z)) 0) as [E0|E0]; [rewrite E0; ring|]. rewrite (Hout z Hz) by lra. ring. }
  assert (E2 : Sum (combine l xs) (fun z => level c tau theta (fst z) * (ph (fst z) * g (c (fst z))))
    = Sum (combine l xs) (fun z => if Rlt_dec tau (c (fst z)) then ph (fst z) * g (c (fst z)) else 0)
    + g tau * (theta * Sum l (fun t => if Req_EM_T (c t) tau then ph t else 0))).
  { rewrite <- (Sum_fst l xs (fun t => if Req_EM_T (c t) tau then ph t else 0) (proj1 Hx)).
    rewrite <- !Sum_scal, <- Sum_plus. apply Sum_ext. intros z Hz. unfold level.
    destruct (Rlt_dec tau (c (fst z))) as [L|L]; destruct (Req_EM_T (c (fst z)) tau) as [Q|Q]; try lra. rewrite Q. ring. }
  rewrite E1, E2, Hth. reflexivity.
Qed.

Lemma upper_of_max xs :
  maximal xs -> 1 <= lU xs + lV xs ->
  (forall z, In z (combine l xs) -> 0 < ph (fst z) -> 0 < snd z -> 0 < c (fst z)) ->
  exists tau theta, 0 <= theta <= 1 /\ fval l ph c (level c tau theta) = lval xs.
Proof.
  intros Hm HZ Hpos. pose proof (proj1 Hm) as Hx.
  destruct (lowest (fun z => 0 < ph (fst z) /\ 0 < snd z) (combine l xs)) as [None|(z0 & Hz0 & [Hp0 Hs0] & Hmin)].
  - intros z. destruct (Rlt_dec 0 (ph (fst z))), (Rlt_dec 0 (snd z)); [left|right|right|right]; tauto.
  - destruct empty_level as [tau Ht]. exists tau, 0. split; [lra|]. rewrite fval_empty by assumption.
    assert (E : forall w, (forall t, ph t = 0 -> w t = 0) -> lin l xs w = 0).
    { intros w Hw0. apply Sum_0. intros z Hz. destruct (item z xs Hx Hz) as (_ & H1 & H2 & _).
      destruct (Req_dec (ph (fst z)) 0) as [E0|E0]; [rewrite Hw0 by assumption; ring|].
      destruct (Req_dec (snd z) 0) as [->|E1]; [ring|]. exfalso. apply (None z Hz). lra. }
    unfold lval, lU, lP. rewrite (E (fun t => ph t * exp (c t))), (E ph); [unfold Rdiv; ring|auto|].
    intros t ->. ring.
  - set (tau := c (fst z0)).
    assert (Hc0 : 0 < tau) by (apply Hpos; assumption).
    pose proof (lU_nonneg xs Hx) as HU. pose proof (lV_nonneg xs Hx) as HV.
    set (U := lU xs) in *. set (V := lV xs) in *.
    assert (HU0 : 0 < U).
    { assert (K : snd z0 * (ph (fst z0) * exp (c (fst z0))) <= U).
      { unfold U, lU, lin. apply (Sum_ge_one (combine l xs) (fun z => snd z * (ph (fst z) * exp (c (fst z))))); [|assumption].
        intros s Hs. destruct (item s xs Hx Hs) as (_ & H1 & H2 & H3 & _). apply Rmult_le_pos; [lra|apply Rmult_le_pos; lra]. }
      pose proof (exp_pos (c (fst z0))).
      assert (0 < snd z0 * (ph (fst z0) * exp (c (fst z0)))) by (repeat apply Rmult_lt_0_compat; assumption). lra. }
    assert (HD0 : 0 <= lD xs (fst z0)).
    { destruct (Rle_lt_dec 0 (lD xs (fst z0))) as [|L]; [assumption|exfalso].
      assert (snd z0 = 0); [|lra]. apply (at_max_out xs (fst z0)); auto. now rewrite <- surjective_pairing. }
    (* above tau the first-order term is positive *)
    assert (Habove : forall t, tau < c t -> 0 < lD xs t).
    { intros t Ht. unfold lD in *. fold U V in HD0 |- *. fold tau in HD0.
      assert (H1 : 1 < exp tau) by (rewrite <- exp_0; now apply exp_increasing).
      assert (H2 : exp tau < exp (c t)) by now apply exp_increasing.
      rewrite exp_Ropp in *.
      set (a := exp tau) in *. set (b := exp (c t)) in *.
      assert (Ha : a * / a = 1) by (apply Rinv_r; lra). assert (Hb : b * / b = 1) by (apply Rinv_r; lra).
      assert (Pa : 0 < / a) by (apply Rinv_0_lt_compat; lra). assert (Pb : 0 < / b) by (apply Rinv_0_lt_compat; lra).
      assert (HZZ : U + V <= (U + V)^2) by nra.
      (* (a - 1) (V - U / a) >= 0 *)
      assert (K1 : 0 <= (a - 1) * (V - U * / a)).
      { replace ((a - 1) * (V - U * / a)) with (V * a + U * / a - V - U * (a * / a)) by ring. rewrite Ha. lra. }
      assert (K2 : 0 <= V - U * / a).
      { apply Rmult_le_reg_l with (a - 1); [lra|]. lra. }
      assert (K3 : / a * / b < / a).
      { rewrite <- (Rmult_1_r (/ a)) at 2. apply Rmult_lt_compat_l; [assumption|].
        rewrite <- Rinv_1. apply Rinv_lt_contravar; lra. }
      assert (K4 : 0 < (b - a) * (V - U * (/ a * / b))).
      { apply Rmult_lt_0_compat; [lra|]. assert (U * (/ a * / b) < U * / a) by (apply Rmult_lt_compat_l; assumption). lra. }
      replace ((b - a) * (V - U * (/ a * / b))) with (V * b - V * a - U * / a * (b * / b) + U * / b * (a * / a)) in K4 by ring.
      rewrite Ha, Hb in K4. lra. }
    set (Mt := Sum l (fun t => if Req_EM_T (c t) tau then ph t else 0)).
    set (Nt := Sum (combine l xs) (fun z => if Req_EM_T (c (fst z)) tau then snd z * ph (fst z) else 0)).
    assert (EM : Mt = Sum (combine l xs) (fun z => if Req_EM_T (c (fst z)) tau then ph (fst z) else 0)).
    { unfold Mt. symmetry. apply (Sum_fst l xs (fun t => if Req_EM_T (c t) tau then ph t else 0)). apply Hx. }
    assert (HM : 0 < Mt).
    { assert (ph (fst z0) <= Mt); [|lra]. rewrite EM.
      pose proof (Sum_ge_one (combine l xs) (fun z => if Req_EM_T (c (fst z)) tau then ph (fst z) else 0) z0) as K.
      cbv beta in K. fold tau in K. destruct (Req_EM_T tau tau) as [_|N]; [|congruence]. apply K; [|assumption].
      intros s Hs. destruct (item s xs Hx Hs) as (_ & _ & H2 & _). destruct (Req_EM_T _ _); lra. }
    assert (HN : 0 <= Nt <= Mt).
    { rewrite EM. unfold Nt. split.
      - apply Sum_nonneg. intros s Hs. destruct (item s xs Hx Hs) as (_ & H1 & H2 & _). destruct (Req_EM_T _ _); [|lra].
        apply Rmult_le_pos; lra.
      - apply Sum_le. intros s Hs. destruct (item s xs Hx Hs) as (_ & H1 & H2 & _). destruct (Req_EM_T _ _); [|lra].
        rewrite <- (Rmult_1_l (ph (fst s))) at 2. apply Rmult_le_compat_r; lra. }
    exists tau, (Nt / Mt). split.
    { split; [apply Rmult_le_pos; [lra|left; now apply Rinv_0_lt_compat]|].
      apply Rmult_le_reg_r with Mt; [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
    assert (LS := level_sums xs tau (Nt / Mt) Hx).
    assert (LS' : forall g : R -> R, lin l xs (fun t => ph t * g (c t)) = Sum l (fun t => level c tau (Nt / Mt) t * (ph t * g (c t)))).
    { apply LS.
      - intros z Hz Hp Ht. apply (at_max_in xs (fst z)); auto. now rewrite <- surjective_pairing.
      - intros z Hz Hp Ht. destruct (item z xs Hx Hz) as (_ & H1 & _).
        destruct (Req_dec (snd z) 0) as [|E]; [assumption|exfalso]. specialize (Hmin z Hz ltac:(lra)). fold tau in Hmin. lra.
      - fold Mt Nt. field. lra. }
    rewrite fval_lval. unfold lval, lU, lV, lP. rewrite !lin_map.
    rewrite <- (LS' exp), <- (LS' (fun r => exp (- r))).
    assert (EP : lin l xs ph = Sum l (fun t => level c tau (Nt / Mt) t * ph t)).
    { pose proof (LS' (fun _ => 1)) as K. unfold lin in *.
      rewrite (Sum_ext (combine l xs) (fun z => snd z * (ph (fst z) * 1)) (fun z => snd z * ph (fst z))) in K by (intros; ring).
      rewrite K. apply Sum_ext. intros; ring. }
    now rewrite <- EP.
Qed.

(** ** From U + V < 1 *)

Lemma maximal_Z xs : maximal xs -> 0 < lval xs -> exists ys, maximal ys /\ 1 <= lU ys + lV ys.
Proof.
  intros Hm Hpos. pose proof (proj1 Hm) as Hx. pose proof (proj1 Hx) as Hlen.
  destruct (Rle_lt_dec 1 (lU xs + lV xs)) as [HZ|HZ]; [exists xs; now split|].
  pose proof (lU_nonneg xs Hx) as HU0. pose proof (lV_nonneg xs Hx) as HV0. pose proof (lZ_lower xs Hx) as HZl. pose proof Am_pos as Ham.
  set (K := combine l xs) in *.
  set (p := fun z : I * R => ph (fst z)). set (u := fun z : I * R => exp (c (fst z))). set (v := fun z : I * R => exp (- c (fst z))).
  assert (It : forall z, In z K -> 0 <= snd z <= 1 /\ 0 <= p z /\ 1 <= u z /\ 0 < v z /\ v z * u z = 1 /\ v z <= 1).
  { intros z Hz. destruct (item z xs Hx Hz) as (_ & H). exact H. }
  set (n := Sum K (fun z => (1 - snd z) * p z)).
  set (NU := Sum K (fun z => (1 - snd z) * p z * u z)).
  set (V := lV xs) in *.
  assert (EV : V = Sum K (fun z => (1 - snd z) * p z * v z)) by (unfold V; now rewrite lV_K).
  assert (Eone : Sum K p = 1).
  { unfold K, p. rewrite (Sum_fst l xs ph Hlen). apply Hw. }
  assert (EP : lP xs = 1 - n).
  { rewrite <- Eone. unfold n. rewrite <- Sum_minus. unfold lP, lin. apply Sum_ext. intros; unfold p; ring. }
  assert (Hn0 : 0 <= n).
  { apply Sum_nonneg. intros z Hz. destruct (It z Hz) as (H1 & H2 & _). apply Rmult_le_pos; lra. }
  assert (HVn : V <= n).
  { rewrite EV. apply Sum_le. intros z Hz. destruct (It z Hz) as (H1 & H2 & H3 & H4 & H5 & H6).
    rewrite <- (Rmult_1_r ((1 - snd z) * p z)) at 2. apply Rmult_le_compat_l; [apply Rmult_le_pos; lra|lra]. }
  set (z := lU xs + V) in *.
  assert (Ef : lval xs = n - V / z) by (unfold lval; fold V z; rewrite EP; unfold z; field; unfold z in *; lra).
  assert (HVz : 0 <= V / z) by (apply Rmult_le_pos; [assumption|left; apply Rinv_0_lt_compat; lra]).
  assert (Hn : 0 < n) by lra.
  assert (CS : forall w : I * R -> R, (forall y, In y K -> 0 <= w y) -> (Sum K w)^2 <= Sum K (fun y => w y * u y) * Sum K (fun y => w y * v y)).
  { intros w Hwn. pose proof (Sum_CS K w (fun y => exp (c (fst y) / 2)) (fun y => exp (- c (fst y) / 2)) Hwn) as Q. cbv beta in Q.
    rewrite (Sum_ext K (fun t => w t * (exp (c (fst t) / 2) * exp (- c (fst t) / 2))) w) in Q.
    2: { intros y _. rewrite <- exp_plus. replace (c (fst y) / 2 + - c (fst y) / 2) with 0 by lra. rewrite exp_0. ring. }
    rewrite (Sum_ext K (fun t => w t * exp (c (fst t) / 2) ^ 2) (fun y => w y * u y)) in Q.
    2: { intros y _. unfold u. simpl. rewrite Rmult_1_r, <- exp_plus. do 2 f_equal. lra. }
    rewrite (Sum_ext K (fun t => w t * exp (- c (fst t) / 2) ^ 2) (fun y => w y * v y)) in Q.
    2: { intros y _. unfold v. simpl. rewrite Rmult_1_r, <- exp_plus. do 2 f_equal. lra. }
    exact Q. }
  assert (HJ : n^2 <= NU * V).
  { rewrite EV. apply CS. intros y Hy. destruct (It y Hy) as (H1 & H2 & _). apply Rmult_le_pos; lra. }
  assert (HV : 0 < V).
  { destruct HV0 as [|E0]; [assumption|exfalso]. rewrite <- E0, Rmult_0_r in HJ.
    assert (0 < n^2) by (apply pow_lt; assumption). lra. }
  set (xb := n / V).
  set (lo := fun y : I * R => if Rle_dec (u y) xb then snd y * p y else 0).
  set (hi := fun y : I * R => if Rle_dec (u y) xb then 0 else snd y * p y).
  assert (Hlo : forall y, In y K -> 0 <= lo y).
  { intros y Hy. destruct (It y Hy) as (H1 & H2 & _). unfold lo. destruct (Rle_dec _ _); [apply Rmult_le_pos; lra|lra]. }
  assert (Hhi : forall y, In y K -> 0 <= hi y).
  { intros y Hy. destruct (It y Hy) as (H1 & H2 & _). unfold hi. destruct (Rle_dec _ _); [lra|apply Rmult_le_pos; lra]. }
  destruct (move_up (Sum K lo) (Sum K hi) n (Sum K (fun y => lo y * u y)) (Sum K (fun y => lo y * v y))
    (Sum K (fun y => hi y * u y)) V NU z) as (theta & Hth & HZ' & Hf'); try assumption; fold xb.
  - now apply Sum_nonneg.
  - now apply Sum_nonneg.
  - rewrite <- Eone. unfold n. rewrite <- !Sum_plus. apply Sum_ext. intros y _. unfold lo, hi. destruct (Rle_dec _ _); ring.
  - unfold z, lU, lin. f_equal. rewrite <- Sum_plus. apply Sum_ext. intros y _. unfold lo, hi, p, u. destruct (Rle_dec _ _); ring.
  - unfold z in *; lra.
  - replace (Sum K (fun y => lo y * u y) + Sum K (fun y => hi y * u y) + V) with z.
    + apply Rle_ge. assert (V / z * z <= n * z) by (apply Rmult_le_compat_r; unfold z in *; lra).
      replace (V / z * z) with V in H by (field; unfold z in *; lra). lra.
    + unfold z, lU, lin. f_equal. rewrite <- Sum_plus. apply Sum_ext. intros y _. unfold lo, hi, p, u. destruct (Rle_dec _ _); ring.
  - now apply CS.
  - apply Sum_nonneg. intros y Hy. destruct (It y Hy) as (_ & _ & _ & H4 & _). apply Rmult_le_pos; [now apply Hlo|lra].
  - apply Sum_nonneg. intros y Hy. destruct (It y Hy) as (_ & _ & H3 & _). apply Rmult_le_pos; [now apply Hlo|lra].
  - apply Sum_le. intros y Hy. destruct (It y Hy) as (_ & _ & H3 & _ & _ & H6). apply Rmult_le_compat_l; [now apply Hlo|lra].
  - apply Sum_le. intros y Hy. destruct (It y Hy) as (_ & _ & H3 & _). specialize (Hhi y Hy).
    rewrite <- (Rmult_1_r (hi y)) at 1. apply Rmult_le_compat_l; lra.
  - rewrite <- Sum_scal_r. apply Sum_le. intros y Hy. specialize (Hlo y Hy). unfold lo in *. destruct (Rle_dec (u y) xb); [|lra].
    apply Rmult_le_compat_l; assumption.
  - rewrite <- Sum_scal_r. apply Sum_le. intros y Hy. specialize (Hhi y Hy). unfold hi in *. destruct (Rle_dec (u y) xb); [lra|].
    apply Rmult_le_compat_l; lra.
  - rewrite <- Sum_scal_r, <- Sum_scal_r, <- Sum_minus. apply Sum_le. intros y Hy. destruct (It y Hy) as (_ & _ & H3 & H4 & H5 & _).
    specialize (Hlo y Hy). unfold lo in *. destruct (Rle_dec (u y) xb) as [L|]; [|lra].
    replace (snd y * p y * (1 + xb) - snd y * p y * u y) with (snd y * p y * (1 + xb - u y)) by ring.
    rewrite Rmult_assoc. apply Rmult_le_compat_l; [assumption|].
    assert (0 <= (u y - 1) * (xb - u y)) by (apply Rmult_le_pos; lra).
    apply Rmult_le_reg_r with (u y); [lra|].
    replace (v y * xb * u y) with ((v y * u y) * xb) by ring. rewrite H5. lra.
  - set (g := fun y : I * R => (if Rle_dec (u y) xb then 0 else snd y) + theta * (1 - snd y)).
    destruct (transform l xs g Hlen) as [Hlin Hcube]. fold K in Hlin, Hcube.
    assert (Hy : incube (length l) (map g K)).
    { apply Hcube. intros y Hy. destruct (It y Hy) as (H1 & _). unfold g.
      assert (0 <= theta * (1 - snd y) <= 1 - snd y) by (split; [apply Rmult_le_pos; lra|nra]).
      destruct (Rle_dec _ _); lra. }
    assert (EU' : lU (map g K) = Sum K (fun y => hi y * u y) + theta * NU).
    { unfold lU. rewrite Hlin. unfold NU. rewrite <- Sum_scal, <- Sum_plus. apply Sum_ext. intros y _.
      unfold g, hi, u, p. destruct (Rle_dec _ _); ring. }
    assert (EP' : lP (map g K) = Sum K hi + theta * n).
    { unfold lP. rewrite Hlin. unfold n. rewrite <- Sum_scal, <- Sum_plus. apply Sum_ext. intros y _.
      unfold g, hi, u, p. destruct (Rle_dec _ _); ring. }
    assert (EV' : lV (map g K) = Sum K (fun y => lo y * v y) + (1 - theta) * V).
    { unfold lV. rewrite Hlin, EV, <- (Sum_fst l xs _ Hlen). fold K.
      rewrite <- Sum_scal, <- Sum_plus, <- Sum_minus. apply Sum_ext. intros y _.
      unfold g, lo, u, v, p. destruct (Rle_dec _ _); ring. }
    cbv zeta in *. rewrite <- EU', <- EV', <- EP' in *.
    exists (map g K). split; [|assumption]. split; [assumption|]. intros ys Hys.
    apply Rle_trans with (lval xs); [now apply (proj2 Hm)|]. rewrite Ef. exact Hf'.
Qed.

(** Tokens of radius zero may leave where U + V = 1. *)
Lemma maximal_positive xs : maximal xs -> 1 <= lU xs + lV xs ->
  exists ys, maximal ys /\ 1 <= lU ys + lV ys /\
  forall z, In z (combine l ys) -> 0 < ph (fst z) -> 0 < snd z -> 0 < c (fst z).
Proof.
  intros Hm HZ. pose proof (proj1 Hm) as Hx. pose proof (proj1 Hx) as Hlen.
  destruct HZ as [HZ|HZ].
  - exists xs. split; [assumption|]. split; [lra|]. intros z Hz Hp Hs.
    destruct (item z xs Hx Hz) as (Ht & _). destruct (Hc _ Ht) as [|E0]; [assumption|exfalso].
    assert (snd z = 0); [|lra]. apply (at_max_out xs (fst z)); auto; [now rewrite <- surjective_pairing|].
    unfold lD. rewrite <- E0, Ropp_0, exp_0. nra.
  - set (g := fun z : I * R => if Req_EM_T (c (fst z)) 0 then 0 else snd z).
    destruct (transform l xs g Hlen) as [Hlin Hcube]. set (ys := map g (combine l xs)) in *.
    assert (Hy : incube (length l) ys).
    { apply Hcube. intros z Hz. destruct (item z xs Hx Hz) as (_ & H1 & _). unfold g. destruct (Req_EM_T _ _); lra. }
    set (q := Sum (combine l xs) (fun z => if Req_EM_T (c (fst z)) 0 then snd z * ph (fst z) else 0)).
    assert (EU : lU ys = lU xs - q).
    { unfold lU, q. rewrite Hlin. unfold lin. rewrite <- Sum_minus. apply Sum_ext. intros z _. unfold g.
      destruct (Req_EM_T _ _) as [->|]; [rewrite exp_0|]; ring. }
    assert (EV : lV ys = lV xs + q).
    { unfold lV, q. rewrite Hlin. unfold lin.
      match goal with |- ?a - ?s1 = ?a - ?s2 + ?s3 => assert (s2 = s1 + s3); [|lra] end.
      rewrite <- Sum_plus. apply Sum_ext. intros z _. unfold g.
      destruct (Req_EM_T _ _) as [->|]; [rewrite Ropp_0, exp_0|]; ring. }
    assert (EP : lP ys = lP xs - q).
    { unfold lP, q. rewrite Hlin. unfold lin. rewrite <- Sum_minus. apply Sum_ext. intros z _. unfold g.
      destruct (Req_EM_T _ _); ring. }
    assert (EZ : lU ys + lV ys = 1) by lra.
    assert (Ev : lval ys = lval xs) by (unfold lval; rewrite EZ, <- HZ, EU, EP; field).
    exists ys. split; [split; [assumption|]; intros zs Hzs; rewrite Ev; now apply (proj2 Hm)|]. split; [lra|].
    intros z Hz Hp Hs. destruct (item z ys Hy Hz) as (Ht & _). destruct (Hc _ Ht) as [|E0]; [assumption|exfalso].
    assert (G : forall (k : list I) (zs : list R), length zs = length k -> forall y, In y (combine k (map g (combine k zs))) ->
      c (fst y) = 0 -> snd y = 0).
    { clear. induction k as [|a k IH]; intros zs H y Hy0 E; [easy|]. destruct zs as [|b zs]; [easy|].
      simpl in Hy0. destruct Hy0 as [<-|Hy0].
      - simpl in E. simpl. unfold g. simpl. destruct (Req_EM_T (c a) 0); [reflexivity|contradiction].
      - apply (IH zs); auto. }
    rewrite (G l xs Hlen z Hz) in Hs by auto. lra.
Qed.

(** 3.7: the maximum over all fractional sets is that of a set of all tokens above a level of the radius, one fraction
    of those at the level, and none below. *)
Theorem upper_sets :
  exists tau theta, 0 <= theta <= 1 /\ forall x, frac l x -> fval l ph c x <= fval l ph c (level c tau theta).
Proof.
  destruct maximiser as [xs Hm].
  assert (Hall : forall x, frac l x -> fval l ph c x <= lval xs).
  { intros x Hx. rewrite fval_lval. apply Hm. now apply map_incube. }
  destruct empty_level as [tau0 H0].
  destruct (Rle_lt_dec (lval xs) 0) as [L|L].
  - exists tau0, 0. split; [lra|]. intros x Hx. rewrite (fval_empty (level c tau0 0)) by assumption.
    apply Rle_trans with (1 := Hall x Hx). exact L.
  - destruct (maximal_Z xs Hm L) as (ys & Hy & HZ). destruct (maximal_positive ys Hy HZ) as (zs & Hz & HZ' & Hp).
    destruct (upper_of_max zs Hz HZ' Hp) as (tau & theta & Hth & E). exists tau, theta. split; [assumption|].
    intros x Hx. rewrite E. apply Rle_trans with (1 := Hall x Hx). apply Hz. apply Hm.
Qed.

Lemma level_frac tau theta : 0 <= theta <= 1 -> frac l (level c tau theta).
Proof. intros H t _. unfold level. destruct (Rlt_dec _ _); [lra|]. destruct (Req_EM_T _ _); lra. Qed.

(** TV-star is attained by an upper set. *)
Corollary TVstar_upper_set :
  exists tau theta, 0 <= theta <= 1 /\ frac l (level c tau theta) /\ TVstar l ph c = fval l ph c (level c tau theta).
Proof.
  destruct upper_sets as (tau & theta & Hth & H). exists tau, theta. split; [assumption|].
  assert (Hf := level_frac tau theta Hth). split; [assumption|].
  apply Rle_antisym; [now apply TVstar_le|now apply TVstar_ub].
Qed.

End Max.

(** * Sorted tokens: one fractional element

    On a list sorted by radius, largest first, the first [k] tokens are taken whole, the next one in the fraction
    [theta], the rest not at all.  Tokens of equal radius may stand in any order. *)

Definition prefix (n k : nat) (theta : R) : list R := repeat 1 k ++ theta :: repeat 0 (n - k - 1).

Section SortedScan.
Context {I : Type}.
Variables (ph c : I -> R).

Definition descending (l : list I) : Prop := StronglySorted (fun s t => c t <= c s) l.

Lemma lin_zeros (l : list I) n w : lin l (repeat 0 n) w = 0.
Proof.
  revert n. induction l as [|a l IH]; intros n; [reflexivity|]. destruct n as [|n]; [reflexivity|].
  unfold lin in *. simpl. rewrite IH. ring.
Qed.

Lemma lin_first a (l : list I) theta w : lin (a :: l) (prefix (S (length l)) 0 theta) w = theta * w a.
Proof.
  unfold prefix. simpl. unfold lin. simpl. fold (lin l (repeat 0 (length l - 0)) w). rewrite lin_zeros. ring.
Qed.

Lemma lin_next a (l : list I) k theta w :
  lin (a :: l) (prefix (S (length l)) (S k) theta) w = w a + lin l (prefix (length l) k theta) w.
Proof. unfold prefix, lin. simpl. ring. Qed.

Definition tie (tau : R) (t : I) : R := if Req_EM_T (c t) tau then ph t else 0.

(** Any mass up to that of the ties can be made of whole tokens and one fraction. *)
Lemma fill tau (l : list I) : forall m,
  descending l -> l <> [] -> (forall t, In t l -> c t <= tau) -> (forall t, In t l -> 0 <= ph t) ->
  0 <= m <= Sum l (tie tau) ->
  exists k theta, (k < length l)%nat /\ 0 <= theta <= 1 /\
    forall g : R -> R, lin l (prefix (length l) k theta) (fun t => ph t * g (c t)) = g tau * m.
Proof.
  induction l as [|a l IH]; intros m Hd Hne Hle Hp Hm; [congruence|]. clear Hne.
  inversion_clear Hd as [|? ? Hd' Ha]. rewrite Forall_forall in Ha.
  assert (Hpa : 0 <= ph a) by (apply Hp; now left).
  simpl Sum in Hm. unfold tie at 1 in Hm.
  destruct (Req_EM_T (c a) tau) as [Ea|Na].
  - destruct (Rle_lt_dec m (ph a)) as [L|L].
    + exists 0%nat. destruct (Req_dec (ph a) 0) as [Z|Z].
      * exists 0. split; [simpl; lia|]. split; [lra|]. intros g. simpl length. rewrite lin_first.
        replace m with 0 by lra. ring.
      * exists (m / ph a). split; [simpl; lia|]. split.
        { split; [apply Rmult_le_pos; [lra|left; apply Rinv_0_lt_compat; lra]|].
          apply Rmult_le_reg_r with (ph a); [lra|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
        intros g. simpl length. rewrite lin_first, Ea. field. lra.
    + destruct l as [|b l]; [simpl in Hm; lra|].
      destruct (IH (m - ph a)) as (k & theta & Hk & Hth & Hg); [assumption|discriminate| | |lra|].
      * intros t Ht. apply Hle. now right.
      * intros t Ht. apply Hp. now right.
      * exists (S k), theta. split; [simpl in *; lia|]. split; [assumption|]. intros g.
        change (length (a :: b :: l)) with (S (length (b :: l))). rewrite lin_next, Hg, Ea. ring.
  - assert (Hz : Sum l (tie tau) = 0).
    { apply Sum_0. intros t Ht. unfold tie. destruct (Req_EM_T (c t) tau) as [Et|]; [exfalso|reflexivity].
      specialize (Ha t Ht). specialize (Hle a (or_introl eq_refl)). lra. }
    exists 0%nat, 0. split; [simpl; lia|]. split; [lra|]. intros g. simpl length. rewrite lin_first.
    replace m with 0 by lra. ring.
Qed.

(** A level set as a prefix with one fraction. *)
Lemma level_prefix tau theta0 (l : list I) :
  descending l -> l <> [] -> (forall t, In t l -> 0 <= ph t) -> 0 <= theta0 <= 1 ->
  exists k theta, (k < length l)%nat /\ 0 <= theta <= 1 /\
    forall g : R -> R, lin l (prefix (length l) k theta) (fun t => ph t * g (c t))
      = Sum l (fun t => level c tau theta0 t * (ph t * g (c t))).
Proof.
  induction l as [|a l IH]; intros Hd Hne Hp Hth; [congruence|]. clear Hne.
  pose proof Hd as Hd0. inversion_clear Hd as [|? ? Hd' Ha]. rewrite Forall_forall in Ha.
  destruct (Rlt_dec tau (c a)) as [L|L].
  - destruct l as [|b l].
    + exists 0%nat, 1. split; [simpl; lia|]. split; [lra|]. intros g. simpl length. rewrite lin_first. simpl.
      unfold level. destruct (Rlt_dec tau (c a)); [ring|contradiction].
    + destruct IH as (k & theta & Hk & Hth' & Hg); [assumption|discriminate|intros t Ht; apply Hp; now right|assumption|].
      exists (S k), theta. split; [simpl in *; lia|]. split; [assumption|]. intros g.
      change (length (a :: b :: l)) with (S (length (b :: l))). rewrite lin_next, Hg.
      change (Sum (a :: b :: l) ?f) with (f a + Sum (b :: l) f). cbv beta. unfold level at 2.
      destruct (Rlt_dec tau (c a)); [ring|contradiction].
  - assert (Hle : forall t, In t (a :: l) -> c t <= tau).
    { intros t [<-|Ht]; [lra|]. specialize (Ha t Ht). lra. }
    assert (HT : 0 <= Sum (a :: l) (tie tau)).
    { apply Sum_nonneg. intros t Ht. unfold tie. destruct (Req_EM_T _ _); [now apply Hp|lra]. }
    destruct (fill tau (a :: l) (theta0 * Sum (a :: l) (tie tau)) Hd0 ltac:(discriminate) Hle Hp) as (k & theta & Hk & Hth' & Hg).
    { split; [apply Rmult_le_pos; lra|]. rewrite <- (Rmult_1_l (Sum (a :: l) (tie tau))) at 2. apply Rmult_le_compat_r; lra. }
    exists k, theta. split; [assumption|]. split; [assumption|]. intros g. rewrite Hg.
    rewrite <- Sum_scal, <- Sum_scal. apply Sum_ext. intros t Ht. specialize (Hle t Ht). unfold level, tie.
    destruct (Rlt_dec tau (c t)); [lra|]. destruct (Req_EM_T (c t) tau) as [->|]; ring.
Qed.

End SortedScan.

(** 3.7, 10.2: after sorting by radius the scan over prefixes with one fraction attains TV-star. *)
Theorem sorted_scan {I : Type} (l : list I) (ph c : I -> R) :
  weights l ph -> (forall t, In t l -> 0 <= c t) -> descending c l ->
  exists k theta, (k < length l)%nat /\ 0 <= theta <= 1 /\
    TVstar l ph c = lval l ph c (prefix (length l) k theta).
Proof.
  intros Hw Hc Hd. destruct (TVstar_upper_set l ph c Hw Hc) as (tau & theta0 & Hth & _ & E).
  destruct (level_prefix ph c tau theta0 l Hd (weights_nonempty l ph Hw) (proj1 Hw) Hth) as (k & theta & Hk & Hth' & Hg).
  exists k, theta. split; [assumption|]. split; [assumption|]. rewrite E, fval_lval. unfold lval, lU, lV, lP.
  rewrite !lin_map, <- (Hg exp), <- (Hg (fun r => exp (- r))).
  assert (EP : lin l (prefix (length l) k theta) ph = Sum l (fun t => level c tau theta0 t * ph t)).
  { pose proof (Hg (fun _ => 1)) as K. unfold lin in *.
    rewrite (Sum_ext (combine l (prefix (length l) k theta)) (fun z => snd z * (ph (fst z) * 1)) (fun z => snd z * ph (fst z))) in K
      by (intros; ring).
    rewrite K. apply Sum_ext. intros; ring. }
  now rewrite <- EP.
Qed.

(** * The fraction at the boundary element (3.5)

    With sums [U0], [V0] before the element enters, [a] = p u, [b] = p / u: the gain is largest at a square root, cut to
    [0, 1].  For a = b (radius zero) the gain is linear in the fraction and only whole elements matter. *)

Definition boundary (U0 V0 a b p : R) : R := clamp ((sqrt ((a * V0 + b * U0) / p) - (U0 + V0)) / (a - b)).
Definition boundary_val (U0 V0 a b p x : R) : R := (U0 + x * a) / (U0 + x * a + (V0 - x * b)) - x * p.

Theorem boundary_fraction U0 V0 a b p y :
  0 <= U0 -> 0 <= V0 -> 0 < U0 + V0 -> 0 < p -> 0 <= b -> b < a -> 0 <= y <= 1 ->
  0 <= boundary U0 V0 a b p <= 1 /\
  boundary_val U0 V0 a b p y <= boundary_val U0 V0 a b p (boundary U0 V0 a b p).
Proof.
  intros HU HV HZ Hp Hb Hab Hy. split; [apply clamp_range|].
  set (N := a * V0 + b * U0). set (Z0 := U0 + V0) in *. set (r := sqrt (N / p)).
  assert (HN : 0 <= N) by (unfold N; apply Rplus_le_le_0_compat; apply Rmult_le_pos; lra).
  assert (HNp : 0 <= N / p) by (apply Rmult_le_pos; [assumption|left; now apply Rinv_0_lt_compat]).
  assert (Hr : r * r = N / p) by (apply sqrt_sqrt; assumption). assert (Hr0 : 0 <= r) by apply sqrt_pos.
  assert (HpN : p * (r * r) = N) by (rewrite Hr; field; lra).
  set (xs := boundary U0 V0 a b p).
  assert (Hxs : 0 <= xs <= 1) by apply clamp_range.
  set (Zf := fun x => Z0 + x * (a - b)).
  assert (HZf : forall x, 0 <= x -> 0 < Zf x).
  { intros x Hx. unfold Zf. assert (0 <= x * (a - b)) by (apply Rmult_le_pos; lra). lra. }
  (* the difference of two values *)
  assert (D : forall x, 0 <= x ->
    boundary_val U0 V0 a b p x - boundary_val U0 V0 a b p y = (x - y) * (N - p * (Zf x * Zf y)) / (Zf x * Zf y)).
  { intros x Hx. pose proof (HZf x Hx). pose proof (HZf y (proj1 Hy)). unfold boundary_val.
    replace (U0 + x * a + (V0 - x * b)) with (Zf x) by (unfold Zf, Z0; ring).
    replace (U0 + y * a + (V0 - y * b)) with (Zf y) by (unfold Zf, Z0; ring).
    assert (E : (U0 + x * a) * Zf y - (U0 + y * a) * Zf x = (x - y) * N) by (unfold Zf, Z0, N; ring).
    replace ((U0 + x * a) / Zf x - x * p - ((U0 + y * a) / Zf y - y * p))
      with (((U0 + x * a) * Zf y - (U0 + y * a) * Zf x) / (Zf x * Zf y) - (x - y) * p) by (field; lra).
    rewrite E. field. lra. }
  specialize (D xs (proj1 Hxs)). pose proof (HZf xs (proj1 Hxs)) as P1. pose proof (HZf y (proj1 Hy)) as P2.
  assert (K : 0 <= (xs - y) * (N - p * (Zf xs * Zf y))).
  { set (x0 := (r - Z0) / (a - b)).
    assert (Ex0 : Zf x0 = r) by (unfold Zf, x0; field; lra).
    assert (Exs : xs = clamp x0) by reflexivity.
    assert (Hmono : forall s t, s <= t -> Zf s <= Zf t).
    { intros s t Hst. unfold Zf. apply Rplus_le_compat_l, Rmult_le_compat_r; lra. }
    rewrite <- HpN. replace (p * (r * r) - p * (Zf xs * Zf y)) with (p * (r * r - Zf xs * Zf y)) by ring.
    destruct (Rtotal_order y xs) as [L|[->|L]].
    - (* something is taken, so the root is not below zero *)
      assert (Hx0 : 0 < x0).
      { destruct (Rle_lt_dec x0 0) as [Q|]; [exfalso|assumption]. rewrite Exs in L. unfold clamp in L.
        rewrite Rmin_left, Rmax_left in L; lra. }
      assert (H1 : Zf xs <= r).
      { rewrite <- Ex0. apply Hmono. rewrite Exs. unfold clamp. apply Rmax_lub; [lra|apply Rmin_l]. }
      assert (H2 : Zf y <= Zf xs) by (apply Hmono; lra).
      apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; [lra|].
      assert (Zf xs * Zf y <= r * r) by (apply Rmult_le_compat; lra). lra.
    - lra.
    - (* something is left, so the root is below one *)
      assert (Hx0 : x0 < 1).
      { destruct (Rle_lt_dec 1 x0) as [Q|]; [exfalso|assumption]. rewrite Exs in L. unfold clamp in L.
        rewrite Rmin_right, Rmax_right in L; lra. }
      assert (H1 : r <= Zf xs).
      { rewrite <- Ex0. apply Hmono. rewrite Exs. unfold clamp. rewrite Rmin_left by lra. apply Rmax_r. }
      assert (H2 : Zf xs <= Zf y) by (apply Hmono; lra).
      assert (r * r <= Zf xs * Zf y) by (apply Rmult_le_compat; lra).
      assert (0 <= (y - xs) * (p * (Zf xs * Zf y - r * r))) by (apply Rmult_le_pos; [lra|apply Rmult_le_pos; lra]).
      lra. }
  assert (P : 0 < Zf xs * Zf y) by (apply Rmult_lt_0_compat; assumption).
  assert (0 <= (xs - y) * (N - p * (Zf xs * Zf y)) / (Zf xs * Zf y)).
  { apply Rmult_le_pos; [assumption|left; now apply Rinv_0_lt_compat]. }
  lra.
Qed.
